"use strict";
// Charts of a page: colours of the page, zoom by buttons and keys.
const charts = (() => {
  const digits = (value) => {
    const whole = Math.floor(Math.log10(Math.abs(value))) + 1;
    return value.toFixed(Math.max(0, Math.min(3 - whole, 9)));
  };
  const seconds = (value) => {
    const [scale, unit] = [[1, "s"], [1e-3, "ms"], [1e-6, "us"]].find(([one]) => value >= one) ?? [1e-6, "us"];
    return `${digits(value / scale)} ${unit}`;
  };
  // Save a text as a file of the user.
  const save = (name, text, type) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  const models = (of) => [...globalThis.Bokeh?.documents ?? []].flatMap((doc) => doc.roots()).flatMap((root) => [...root.references()])
    .filter((model) => of in model.attributes || model.type === of);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paint = (black) => {
    const [ink, grid] = black ? ["#c9c9d0", "#3a3b41"] : ["#333338", "#e4e4e8"];
    for (const axis of models("major_label_text_color")) {
      axis.setv({ major_label_text_color: ink, axis_label_text_color: ink, axis_line_color: grid });
      if (axis.major_tick_line_color !== null) axis.major_tick_line_color = grid;
    }
    for (const lines of models("grid_line_color")) lines.grid_line_color = grid;
  };
  // For printing, replace charts by pictures in light colours that fit the paper; a canvas would keep its size.
  const printed = () => {
    paint(false);
    for (const chart of document.querySelectorAll("[data-chart]")) {
      const view = Bokeh.index.find_one(ranges[chart.dataset.chart]), image = new Image();
      view.paint();
      image.src = view.export("png", true).canvas.toDataURL();
      image.alt = chart.getAttribute("aria-label");
      chart.append(image);
    }
  };
  const ranges = {};
  const shown = (name) => {
    const range = ranges[name].x_range, unit = ranges[name].below[0].axis_label.match(/\((.*)\)/)?.[1] ?? "";
    for (const output of document.querySelectorAll("[data-range]")) {
      if (ranges[output.dataset.range].x_range === range) {
        output.textContent = `${range.start ? digits(range.start) : 0} to ${digits(range.end)} ${unit}`;
      }
    }
  };
  const move = (name, by) => {
    const range = ranges[name].x_range, [first, last] = range.bounds, wide = range.end - range.start;
    const middle = (range.start + range.end) / 2, least = range.min_interval ?? 0;
    const width = { in: Math.max(wide / 2, least), out: Math.min(wide * 2, last - first), all: last - first }[by] ?? wide;
    const shift = { left: -wide / 4, right: wide / 4 }[by] ?? 0;
    const start = Math.min(Math.max(middle + shift - width / 2, first), last - width);
    range.setv({ start, end: start + width });
  };
  const KEYS = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", "0": "all", Home: "all" };
  // Prepare all charts that are drawn now, within an element of the page.
  const embedded = (within) => {
    for (const name of Object.keys(ranges)) delete ranges[name];
    for (const figure of models("x_range")) {
      if (!figure.name) continue;
      ranges[figure.name] = figure;
      for (const end of ["start", "end"]) figure.x_range.properties[end].change.connect(() => shown(figure.name));
    }
    for (const name of Object.keys(ranges)) shown(name);
    for (const button of within.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => move(button.dataset.zoom, button.dataset.by));
    }
    for (const chart of within.querySelectorAll("[data-chart]")) {
      chart.addEventListener("keydown", (event) => {
        if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        move(chart.dataset.chart, KEYS[event.key]);
      });
    }
    paint(dark.matches);
  };
  const watch = () => {
    dark.addEventListener("change", () => paint(dark.matches));
    addEventListener("beforeprint", printed);
    addEventListener("afterprint", () => {
      for (const image of document.querySelectorAll(".chart > img")) image.remove();
      paint(dark.matches);
    });
  };
  const start = async () => {
    const { documents, item } = JSON.parse(document.getElementById("figures").textContent);
    if (item) await Bokeh.embed.embed_items(documents, [item]);
    embedded(document);
    watch();
    document.body.dataset.ready = "yes";
  };
  return { embedded, save, seconds, start, watch };
})();
