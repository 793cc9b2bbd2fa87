"use strict";
// Uses a report as a reader does, and leaves what it saw as JSON in the element "outcome".
(() => {
  const byId = (id) => document.getElementById(id);
  const tip = byId("tip");
  const fire = (target, type, more) => {
    const event = new Event(type, { bubbles: true, cancelable: true });
    target.dispatchEvent(Object.assign(event, more));
  };
  const move = (target, x, y) => fire(target, "pointermove", { clientX: x, clientY: y });
  // What the chart says under the pointer, all over it.
  const sweep = (id) => {
    const box = byId(id).getBoundingClientRect();
    const texts = new Set();
    for (let y = 2; y < box.height; y += 6) {
      for (let x = 2; x < box.width; x += 15) {
        move(byId(id), box.left + x, box.top + y);
        if (!tip.hidden) texts.add(tip.innerHTML);
      }
    }
    fire(byId(id), "pointerleave");
    return [...texts];
  };
  const chart = (id) => byId(id).innerHTML;
  const seen = { first: chart("timeline-chart"), memory: chart("memory-chart"), layers: chart("layer-chart") };

  seen.timelineTips = sweep("timeline-chart");
  seen.memoryTips = sweep("memory-chart");
  seen.layerTips = [...document.querySelectorAll("#layer-chart .node")].map((node) => {
    move(node, 5, 5);
    return tip.innerHTML;
  });
  seen.focused = document.querySelectorAll("#layer-chart .off").length;
  fire(byId("layer-chart"), "pointerleave");
  seen.unfocused = document.querySelectorAll("#layer-chart .off").length;
  seen.hidden = tip.hidden;

  const [zoomIn, zoomOut, whole] = document.querySelectorAll("[data-zoom]");
  fire(zoomIn, "click");
  fire(byId("memory-chart"), "wheel", { ctrlKey: true, deltaY: -1, clientX: 300 });
  seen.zoomed = chart("timeline-chart");
  fire(byId("timeline-chart"), "pointerdown", { clientX: 300 });
  move(window, 200, 5);
  fire(window, "pointerup");
  seen.panned = chart("timeline-chart");
  fire(zoomOut, "click");
  fire(byId("timeline-chart"), "dblclick");
  seen.reset = chart("timeline-chart");
  fire(whole, "click");
  fire(window, "resize");

  seen.phases = chart("legend");
  byId("colour").value = "layer";
  fire(byId("colour"), "change");
  seen.byLayer = chart("legend");

  // Each table's first column after each click on its heading.
  seen.sorted = [...document.querySelectorAll("table.sortable")].map((table) => {
    const head = table.querySelector("th");
    return [0, 1].map(() => {
      fire(head, "click");
      return [...table.tBodies[0].rows].map((row) => row.cells[0].textContent);
    });
  });
  seen.elements = document.querySelectorAll("[data-odd]").length;
  byId("outcome").textContent = JSON.stringify(seen);
})();
