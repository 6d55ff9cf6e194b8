"use strict";
// Draws the learning curves; on the page of `ablate watch` it also asks where the study stands.
(() => {
  const EVERY = 2000, REST = 15000;  // milliseconds between questions; when all has ended, or nobody looks
  const at = (id) => document.getElementById(id);
  const shown = {};
  let version = 0;

  function draw(curves) {
    at("no-curves").hidden = Boolean(curves);
    if (!curves) return;
    const options = { responsive: true, displaylogo: false, displayModeBar: false };
    Plotly.react(at("curves-plot"), curves.data, curves.layout, options);
    at("curves-plot").dataset.ready = "true";
  }

  async function read(name) {
    const answer = await fetch(name, { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.status);
    return answer.json();
  }

  async function follow() {
    let pause = EVERY;
    try {
      const state = await read("state.json");
      at("problem").hidden = true;
      document.title = state.title;
      for (const part of ["first", "rest"]) {  // escaped by the server
        if (shown[part] !== state[part]) at(part).innerHTML = shown[part] = state[part];
      }
      if (state.version !== version) draw(await read("curves.json"));
      version = state.version;
      if (state.over || document.hidden) pause = REST;
    } catch (error) {
      at("problem").hidden = false;
      at("problem").textContent = "ablate watch does not answer: below is what it last reported.";
    }
    setTimeout(follow, pause);
  }

  draw(JSON.parse(at("curves-data").textContent));
  if (document.body.classList.contains("live")) follow();
})();
