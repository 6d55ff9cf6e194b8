"use strict";
// Tables that sort by a click on a head and show the rows that hold a text, links from a number to its runs, figures that
// open in full size.
(() => {
  const key = (cell) => {
    const text = cell.textContent.trim(), number = Number(cell.dataset.value ?? text.replace("−", "-").replace(/,/g, ""));
    return text === "" || text === "–" ? null : Number.isNaN(number) ? text : number;
  };
  const order = (a, b) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  };
  document.querySelectorAll("table").forEach((table) => {  // a narrow screen shows each row as a list
    const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    [...table.tBodies[0].rows].forEach((row) => [...row.cells].forEach((cell, at) => cell.dataset.head = heads[at]));
    table.classList.add("stacked");
  });
  document.querySelectorAll("button.zoom").forEach((button) => button.addEventListener("click", () => {
    const dialog = document.createElement("dialog"), image = button.firstElementChild.cloneNode();
    image.removeAttribute("width");  // every pixel of the file
    image.removeAttribute("height");
    dialog.append(image);
    dialog.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => { dialog.remove(); button.focus(); });
    document.body.append(dialog);
    dialog.showModal();
  }));
  document.querySelectorAll("table.sortable").forEach((table) => {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, place) => {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: head.textContent });
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = [...body.rows].map((row) => [key(row.cells[place]), row]);
        const empty = rows.filter(([value]) => value === null), known = rows.filter(([value]) => value !== null);
        known.sort(([a], [b]) => up ? order(a, b) : order(b, a));
        body.append(...known.concat(empty).map(([, row]) => row));  // rows without a value stay last
      });
    });
  });
  document.querySelectorAll("form.filter").forEach((form) => {
    const table = document.getElementById(form.dataset.table), shown = form.querySelector("output");
    const rows = [...table.tBodies[0].rows].map((row) => [row, row.textContent.toLowerCase()]);
    const all = form.querySelector("button.all");
    let cells = null;
    const update = () => {
      const text = form.elements.text.value.toLowerCase(), status = form.elements.status.value;
      let count = 0;
      rows.forEach(([row, said]) => {
        const chosen = !cells || cells.includes(row.dataset.cell);
        row.hidden = !(chosen && said.includes(text) && (!status || row.dataset.status === status));
        count += !row.hidden;
      });
      shown.textContent = `${count.toLocaleString("en-GB")} of ${rows.length.toLocaleString("en-GB")} shown`;
    };
    const choose = (found) => {
      cells = found;
      all.hidden = !cells;
      update();
    };
    document.querySelectorAll("a[data-cells]").forEach((link) => link.addEventListener("click", () => {
      form.reset();
      choose(link.dataset.cells.split(" "));
    }));
    all.addEventListener("click", () => choose(null));
    form.hidden = false;
    form.addEventListener("input", update);
    form.addEventListener("submit", (event) => event.preventDefault());
    update();
  });
})();
