"use strict";
(() => {
  const data = (id) => JSON.parse(document.getElementById(id).textContent);
  const result = data("result"), columns = data("columns");

  // --- What if: look up a column; the last knob's value changes fastest.
  const { seconds } = charts;
  const say = (id, text) => { document.getElementById(id).textContent = text; };
  const knobs = [...document.querySelectorAll("[data-knob]")];
  const place = (places) => columns.knobs.reduce((sum, knob, n) => sum * knob.values.length + places[n], 0);
  const answer = () => {
    const places = knobs.map((knob) => Number(knob.value)), { times } = columns;
    const time = times[place(places)], ratio = time / times[place(columns.knobs.map((knob) => knob.own))];
    knobs.forEach((knob, n) => {
      const value = columns.knobs[n].values[places[n]];
      knob.setAttribute("aria-valuetext", value);
      document.querySelector(`[data-value="${n}"]`).textContent = value;
    });
    const notes = columns.knobs.map((knob, n) => knob.notes[places[n]]).filter(Boolean);
    say("what-if-notes", notes.map((note) => ` ${note}.`).join(""));
    const change = 100 * (ratio - 1);
    say("what-if-time", seconds(time));
    say("what-if-change", ratio === 1 ? "as simulated" : `${change > 0 ? "+" : "\u2212"}${Math.abs(change).toFixed(1)} %`);
    say("what-if-expected", seconds(result.step_time_expected * ratio));
    say("what-if-rate", Math.round(result.tokens_per_second / ratio).toLocaleString("en"));
  };
  if (knobs.length) {
    knobs.forEach((knob) => knob.addEventListener("input", answer));
    document.getElementById("what-if-reset").addEventListener("click", () => {
      knobs.forEach((knob, n) => { knob.value = columns.knobs[n].own; });
      answer();
    });
    answer();
  }

  charts.start();

  document.getElementById("save").addEventListener("click", () => {
    charts.save(`${document.title}.json`, JSON.stringify(result), "application/json");
  });
})();
