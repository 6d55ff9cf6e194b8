"use strict";
// Follows a study: asks where it stands, and writes that into the page as text, never as markup.
(() => {
  const EVERY = 2000, REST = 15000;  // milliseconds between questions; when all has ended, or nobody looks
  const at = (id) => document.getElementById(id);
  // What would act on the text around it is spelled out: \u{1b}.
  const plain = (text) => text.replace(/[^\P{C}\n]/gu, (letter) => `\\u{${letter.codePointAt(0).toString(16)}}`);
  const made = (tag, text, name) => Object.assign(document.createElement(tag), { textContent: plain(text), className: name ?? "" });
  const heads = [...document.querySelectorAll("#running th")].map((head) => [head.textContent, head.className]);
  let version = 0, shown = "";

  const say = (element, text) => {
    const said = plain(text);
    element.hidden = !said;
    if (element.textContent !== said) element.textContent = said;  // or it would be read out every time
  };
  const list = (element, items) => {
    element.hidden = !items.length;
    element.replaceChildren(...items);
  };

  function row(values) {
    const found = document.createElement("tr");
    found.append(...values.map((value, i) => {
      const cell = made(i ? "td" : "th", value, heads[i][1]);
      cell.dataset.head = heads[i][0];
      return cell;
    }));
    return found;
  }

  function show(state) {
    const [compared, ...lines] = state.standing, [ended, runs] = state.counts;
    document.title = `${ended}/${runs} · ${state.title} · ablate watch`;
    say(at("title"), state.title);
    say(at("compared"), compared);
    Object.assign(at("bar"), { max: runs, value: ended });
    say(at("state"), lines.pop());
    list(at("rounds"), lines.map((line) => made("li", line)));
    say(at("next"), state.next);
    const running = at("running"), lost = at("lost");
    running.querySelector("tbody").replaceChildren(...state.running.map(row));
    running.querySelector(".scroll").hidden = !state.running.length;
    running.querySelector(".empty").hidden = Boolean(state.running.length);
    list(lost.querySelector("ul"), [
      ...state.lost.map(([name, ending, file]) => {
        const item = made("li", ""), path = made("code", file);
        item.append(made("strong", name), `: ${plain(ending)} `, path);
        return item;
      }),
      ...state.damaged.map((line) => made("li", line)),
    ]);
    say(lost.querySelector(".more"), state.unlisted ? `and ${state.unlisted.toLocaleString("en-GB")} more` : "");
    document.querySelectorAll("[data-of=lost]").forEach((each) => { each.hidden = !(state.lost.length + state.damaged.length); });
    const verdicts = at("verdicts");
    list(verdicts.querySelector("ul"), state.verdicts.map(([line, decided]) => made("li", line, decided ? "decided" : "")));
    verdicts.querySelector(".notes").replaceChildren(...state.notes.map((line) => made("p", line)));
  }

  const read = async (name) => {
    const answer = await fetch(name, { cache: "no-store" });
    if (!answer.ok) throw new Error(`${answer.status}`);
    return answer.json();
  };

  async function follow() {
    let pause = EVERY;
    try {
      const state = await read("state.json"), text = JSON.stringify(state);
      say(at("problem"), state.problem ?? "");
      if (!state.problem && text !== shown) show(state);
      if (!state.problem && state.version !== version) {
        const curves = await read("curves.json");
        at("drawn").hidden = !curves.cells;
        at("training").querySelector(".empty").hidden = Boolean(curves.cells);
        if (curves.cells) document.dispatchEvent(new CustomEvent("curves", { detail: curves }));
        version = state.version;
      }
      shown = text;
      say(at("read"), `Last read at ${new Date().toLocaleTimeString("en-GB")}.`);
      if (state.over || document.hidden) pause = REST;
    } catch (error) {
      say(at("problem"), "ablate watch does not answer: below is what it last reported. It goes on when the command runs again.");
    }
    setTimeout(follow, pause);
  }

  follow();
})();
