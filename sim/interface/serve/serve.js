"use strict";
(() => {
  const by = (id) => document.getElementById(id);
  const made = (tag, properties = {}, ...inner) => {
    const { data = {}, ...rest } = properties, element = Object.assign(document.createElement(tag), rest);
    Object.assign(element.dataset, data);
    element.append(...inner);
    return element;
  };
  const post = async (path, asked, signal) => {
    try {
      const reply = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(asked), signal });
      return await reply.json();
    } catch {
      if (signal?.aborted) return { ended: true };
      return { fault: "the page has lost its server; start `sim serve` again", lost: true };
    }
  };

  // --- The state, which the page's address holds, and its answer.
  const EMPTY = { base: "", settings: {} };
  let state = EMPTY, last = "", answer = null, pinned = null, base = "";
  const tried = []; // { state, key, figures, misfit }
  const keyOf = ({ base, settings }) => new URLSearchParams([["base", base], ...Object.entries(settings)]).toString();
  const read = () => {
    const { base: name = base, ...settings } = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    return { base: name || base, settings };
  };
  let place = 0, end = 0; // the current and the last entry of the browser's history, for undo and redo
  const go = (next, { changed = "", moving = false } = {}) => {
    state = next;
    last = changed;
    const address = `#${keyOf(state)}`;
    if (moving && history.state?.moving) history.replaceState({ place, moving }, "", address);
    else history.pushState({ place: (end = ++place), moving }, "", address);
    steps();
    ask();
  };
  const set = (settings, options) => {
    const next = { ...state.settings };
    for (const [key, value] of Object.entries(settings)) {
      delete next[key]; // the last change is applied last
      if (value !== null) next[key] = value;
    }
    go({ base: state.base, settings: next }, { changed: Object.keys(settings).at(-1), ...options });
  };
  const steps = () => {
    by("undo").disabled = place === 0;
    by("redo").disabled = place >= end;
  };
  addEventListener("popstate", (event) => {
    place = event.state?.place ?? 0;
    state = read();
    last = "";
    steps();
    ask();
  });

  // --- Asking: a question at a time, then the newest state. It ends a question that takes longer than PATIENCE.
  const PATIENCE = 1000; // ms
  let asking = null, again = false;
  const ask = async () => {
    drawing?.abort();
    by("drawn").classList.toggle("stale", document.body.dataset.drawn !== keyOf(state));
    by("limits").classList.toggle("stale", by("limits").dataset.of !== keyOf(state) + "{}");
    if (asking) { again = true; asking.hurry(); return; }
    document.body.dataset.asking = "yes";
    let of, found;
    do {
      again = false;
      of = state;
      const began = performance.now(), taken = () => performance.now() - began, ended = new AbortController();
      asking = { hurry: () => { if (taken() > PATIENCE) ended.abort(); } };
      const tick = setInterval(() => {
        if (again) asking.hurry();
        if (taken() > PATIENCE) computing(`Computing, ${Math.round(taken() / 1000)} s ...`);
      }, 200);
      found = await post("answer", { ...of, last }, ended.signal);
      clearInterval(tick);
      if (!found.ended && (!again || !found.fault)) show(of, found, taken());
    } while (again);
    computing("");
    asking = null;
    if (!found.fault) await draw(of);
    if (of === state) document.body.dataset.asking = "no";
  };
  const computing = (text) => {
    by("computing").textContent = text;
    by("computing").hidden = !text;
    document.body.dataset.slow = text ? "yes" : "no";
  };

  const show = (of, found, took) => {
    if (found.groups) form(found.groups);
    if (found.asks) {
      by("layouts-ask").hidden = !found.asks.includes("layouts");
      by("failures").hidden = !found.asks.includes("failures");
    }
    changes(of);
    by("base").value = of.base;
    by("command").textContent = found.command ?? "";
    by("took").textContent = `Answered in ${Math.round(took)} ms.`;
    mend(found);
    document.body.dataset.fault = found.fault ? "yes" : "no";
    if (found.fault) return;
    answer = found;
    document.title = `${found.title} - sim`;
    by("says").textContent = found.says;
    remember(of, found);
    headline();
    by("words").innerHTML = found.html;
    list();
  };

  // For an impossible job, or a job that does not fit: show the fault, and a button for each proposal.
  const mend = (found) => {
    const box = by("fault"), fault = found.fault ?? (found.misfit ? `Does not fit: it ${found.misfit}.` : "");
    box.hidden = !fault;
    box.replaceChildren();
    if (!fault) return;
    const ways = (found.proposals ?? []).map((one) => button(one.label, () => set(one.settings)));
    if (place > 0 && found.fault) ways.push(button("Undo", () => history.back()));
    if (found.asks?.includes("layouts") && !found.fault) ways.push(button("Better layouts", layouts));
    box.append(made("p", { textContent: fault }), made("p", { className: "ways" }, ...ways));
  };
  const button = (label, act, properties = {}) => {
    const element = made("button", { type: "button", textContent: label, ...properties });
    element.addEventListener("click", act);
    return element;
  };

  // --- Key figures, each against the pinned state.
  const change = (now, before) => {
    if (typeof now !== "number" || typeof before !== "number" || !before || now === before) return "";
    const percent = 100 * (now / before - 1);
    return `${percent > 0 ? "+" : "\u2212"}${Math.abs(percent).toFixed(Math.abs(percent) < 9.95 ? 1 : 0)} %`;
  };
  const headline = () => {
    const others = Object.fromEntries((pinned?.figures ?? []).map((one) => [one.title, one]));
    const words = answer.figures.filter((one) => !/^[\d.,]/.test(one.shown));
    const cards = answer.figures.filter((one) => !words.includes(one)).map((one) => {
      const card = made("div", {}, made("dt", { textContent: one.title }));
      const said = made("dd", {}, made("strong", { textContent: one.shown }));
      const moved = change(one.value, others[one.title]?.value);
      if (moved) said.append(made("span", { className: "moved", textContent: moved, title: "against the pinned state" }));
      if (one.share !== null) {
        const meter = made("i", { className: "meter" }, made("b"));
        meter.firstChild.style.width = `${Math.min(100, 100 * one.share)}%`;
        meter.dataset.over = one.share > 1 ? "yes" : "no";
        said.append(meter);
      }
      if (one.note) said.append(made("small", { textContent: one.note, title: one.note }));
      card.append(said);
      return card;
    });
    const brief = ["step_time_expected", "time_expected", "tokens_per_second", "memory_per_gpu.total"].map((key) => answer.figures.find((one) => one.key === key)).filter(Boolean);
    by("brief").replaceChildren(...brief.map((one) => made("span", { textContent: one.title.split(" of ")[0] }, made("b", { textContent: one.shown }))));
    const said = words.map((one) => `${one.title} ${one.shown}${one.note ? `, ${one.note}` : ""}`).join("; ");
    const limit = limited.of === keyOf(state) ? made("span", { className: "limit", textContent: limited.says }) : "";
    by("headline").replaceChildren(made("h1", { textContent: answer.title }), made("p", {}, said && `${said}. `, limit), made("dl", { className: "figures" }, ...cards));
  };

  // --- Drawings, and longer questions once no control moves.
  let shownDocuments = [];
  let drawing = null;
  const draw = async (of) => {
    await new Promise((resolve) => setTimeout(resolve, 120)); // while a slider moves, numbers come first
    if (of !== state) return;
    drawing = new AbortController();
    const found = await post("charts", of, drawing.signal);
    if (of !== state || found.fault || found.ended) return;
    const box = by("drawn");
    box.style.minHeight = `${box.offsetHeight}px`;
    const old = shownDocuments;
    box.innerHTML = found.html;
    const before = Bokeh.documents.length;
    if (found.item) await Bokeh.embed.embed_items(found.documents, [found.item]);
    for (const document of old) {
      for (const root of document.roots()) Bokeh.index.get_one?.(root)?.remove?.();
      Bokeh.documents.splice(Bokeh.documents.indexOf(document), 1);
    }
    shownDocuments = Bokeh.documents.slice(before - old.length);
    charts.embedded(box);
    box.style.minHeight = "";
    box.classList.remove("stale");
    document.body.dataset.drawn = keyOf(of);
    clearTimeout(draw.later);
    draw.later = setTimeout(() => slow("limits", of), 500);
  };
  const asked = {}; // by name: the longer question that is being answered
  const slow = async (name, of = state, own = {}) => {
    const box = by(name), known = keyOf(of) + JSON.stringify(own);
    if (box.dataset.of === known) return;
    box.dataset.of = known;
    box.classList.add("stale");
    asked[name]?.abort();
    asked[name] = new AbortController();
    const found = await post(name, { ...of, own }, asked[name].signal);
    if (found.ended || box.dataset.of !== known) return;
    box.classList.remove("stale");
    const body = box.querySelector(".body") ?? box;
    if (found.fault && name === "limits") body.replaceChildren();
    else if (found.fault) body.replaceChildren(made("p", { textContent: found.fault }), button("Ask again", () => { box.dataset.of = ""; slow(name, state, own); }));
    else body.innerHTML = found.html;
    if (name === "limits") limited = { of: keyOf(of), says: [...body.querySelectorAll("p")].at(-1)?.textContent ?? "" };
    if (name === "limits") headline();
  };
  let limited = { of: "", says: "" };
  by("rates").addEventListener("submit", async (event) => {
    event.preventDefault();
    by("failures-ask").textContent = "Simulating ...";
    await slow("failures", state, Object.fromEntries([...new FormData(by("rates"))].filter(([, value]) => value.trim())));
    by("failures-ask").textContent = "Simulate a month";
  });

  // --- Better layouts: a search that can be stopped.
  const layouts = async () => {
    const box = by("layouts"), body = box.querySelector(".body"), of = state, began = Date.now();
    box.hidden = false;
    box.scrollIntoView({ block: "nearest" });
    const told = made("span");
    const tick = setInterval(() => { told.textContent = ` Searching, ${Math.round((Date.now() - began) / 1000)} s ...`; }, 200);
    const ticket = crypto.randomUUID();
    body.replaceChildren(button("Stop", () => post("stop", { ticket }), { id: "layouts-stop" }), told);
    asked.layouts?.abort();
    asked.layouts = new AbortController();
    const found = await post("layouts", { ...of, ticket }, asked.layouts.signal);
    clearInterval(tick);
    if (found.ended) return;
    if (found.fault) { body.replaceChildren(made("p", { textContent: found.fault })); return; }
    const rows = found.rows.map((row) => made("tr", {},
      made("th", { scope: "row", textContent: row.layout, title: row.layout.includes("rank order") ? "rank order: ranks of the group named first are neighbours, on one node if they fit" : "" }),
      made("td", { textContent: charts.seconds(row.step) }), made("td", { textContent: change(row.step, found.now) || "as now" }),
      made("td", { textContent: `${(row.memory / 2 ** 30).toFixed(1)} GiB` }),
      made("td", {}, button("Take", () => set(row.settings), { ariaLabel: `Take ${row.layout}` }))));
    const head = made("tr", {}, ...["layout", "step, simulated", "against yours", "memory", ""].map((text) => made("th", { scope: "col", textContent: text })));
    const note = `${found.evaluated.toLocaleString("en")} layouts of this job were evaluated${found.stopped ? " until the search was stopped" : ""}.`;
    body.replaceChildren(made("p", { textContent: note }), made("div", { className: "scroll" }, made("table", {}, made("thead", {}, head), made("tbody", {}, ...rows))));
  };
  by("layouts-ask").addEventListener("click", layouts);

  // --- Everything that was tried, with its differences from the pinned state.
  const remember = (of, found) => {
    const key = keyOf(of), known = tried.find((one) => one.key === key);
    if (tried.at(-1)?.moving) tried.pop(); // places that a slider only passed
    const entry = known ?? { key, state: of };
    Object.assign(entry, { figures: found.figures, misfit: found.misfit, title: found.title, moving: history.state?.moving });
    if (!tried.includes(entry)) tried.push(entry);
    pinned ??= entry;
  };
  const differences = (one, other) => {
    if (one.base !== other.base) return [`scenario ${one.base}`];
    const keys = new Set([...Object.keys(one.settings), ...Object.keys(other.settings)]);
    const short = (value) => (value.length > 40 ? `${value.slice(0, 37)}...` : value);
    return [...keys].filter((key) => one.settings[key] !== other.settings[key])
      .map((key) => `${key} = ${key in one.settings ? short(one.settings[key]) : "as in the scenario"}`);
  };
  const list = () => {
    const titles = pinned.figures.filter((one) => one.value !== null && one.title !== "model").map((one) => one.title);
    const head = ["", "change", ...titles, ""].map((text) => made("th", { scope: "col", textContent: text }));
    const rows = tried.map((entry, number) => {
      const same = entry === pinned, words = same ? ["pinned"] : differences(entry.state, pinned.state);
      const cells = titles.flatMap((title) => {
        const own = entry.figures.find((one) => one.title === title), other = pinned.figures.find((one) => one.title === title);
        const moved = same ? "" : change(own?.value, other?.value);
        return [made("td", {}, own?.shown ?? "-", made("small", { textContent: moved }))];
      });
      const name = made("th", { scope: "row", className: "words", textContent: words.join(", ") || "as pinned" });
      if (entry.misfit) name.append(made("small", { className: "warning", textContent: " does not fit" }));
      const acts = [button("Go", () => go(entry.state), { ariaLabel: `Go to state ${number + 1}` })];
      if (!same) acts.push(button("Compare", () => compare(entry), { ariaLabel: `Compare state ${number + 1}` }), button("Pin", () => pin(entry), { ariaLabel: `Pin state ${number + 1}` }));
      const row = made("tr", {}, made("td", { textContent: number + 1 }), name, ...cells, made("td", { className: "acts" }, ...acts));
      if (entry.key === keyOf(state)) row.setAttribute("aria-current", "true");
      return row;
    });
    keep();
    by("tried").querySelector(".scroll").replaceChildren(made("table", {}, made("thead", {}, made("tr", {}, ...head)), made("tbody", {}, ...rows)));
  };
  const keep = () => { // through a reload; not for good
    try { sessionStorage.setItem(location.pathname, JSON.stringify({ tried, pinned: tried.indexOf(pinned) })); } catch {}
  };
  const kept = () => {
    try {
      const found = JSON.parse(sessionStorage.getItem(location.pathname));
      tried.push(...found.tried);
      pinned = tried[found.pinned];
      list();
    } catch {}
  };
  const pin = (entry) => {
    pinned = entry;
    headline();
    list();
  };
  by("pin").addEventListener("click", () => { const entry = tried.find((one) => one.key === keyOf(state)); if (entry) pin(entry); });
  const compare = async (entry) => {
    const names = { "the pinned state": pinned.state };
    names[differences(entry.state, pinned.state).join(", ").slice(0, 46) || "the other"] = entry.state;
    const found = await post("compare", { states: names }), box = by("compared");
    box.hidden = false;
    if (found.fault) box.querySelector(".body").replaceChildren(made("p", { textContent: found.fault }));
    else box.querySelector(".body").innerHTML = found.html;
    box.scrollIntoView({ block: "nearest" });
  };

  // --- The form: built again if its controls differ; otherwise only its values are set.
  const narrow = matchMedia("(max-width: 56rem)").matches;
  let signature = "";
  const fields = {}; // by key: { show(control) }
  const form = (groups) => {
    const now = JSON.stringify(groups.map((group) => [group.title, group.controls.map((one) => [one.key, one.form, one.choices])]));
    if (now !== signature) {
      const focused = document.activeElement?.id, open = {};
      for (const group of by("groups").children) open[group.dataset.title] = group.open;
      for (const key of Object.keys(fields)) delete fields[key];
      by("groups").replaceChildren(...groups.map((group) => made("details", { className: "group", open: open[group.title] ?? !(group.closed || (narrow && group.title !== "Layout")), data: { title: group.title } },
        made("summary", { textContent: group.title }), ...group.controls.map(row))));
      signature = now;
      if (focused) by(focused)?.focus();
    }
    for (const group of groups) for (const control of group.controls) fields[control.key].show(control);
  };
  const row = (control) => {
    const id = `at-${control.key}`, back = button("\u21ba", () => set({ [control.key]: null }), { className: "back", title: "As in the scenario", ariaLabel: `${control.label}: as in the scenario` });
    const field = FIELDS[control.form](control, id);
    const line = made("div", { className: `row ${control.form}` }, made("label", { htmlFor: id, textContent: control.label, title: control.key }), made("div", { className: "field" }, ...field.elements), back);
    fields[control.key] = { show: (one) => { field.show(one); if (!(one.key in state.settings)) unset[one.key] = { value: one.value, beside: beside(one.key) }; back.hidden = !(one.key in state.settings); line.classList.toggle("own", one.key in state.settings); by(id)?.setAttribute("aria-invalid", one.refused); } };
    return line;
  };
  const unset = {}; // by key: its value without a setting of its own, and the other settings
  const beside = (key) => { const { [key]: own, ...rest } = state.settings; return keyOf({ base: state.base, settings: rest }); };
  const change_of = (control, value, moving = false) => {
    const usual = unset[control.key], same = usual?.value === value && usual.beside === beside(control.key);
    set({ [control.key]: value === "" || same ? null : value }, { moving });
  };
  const FIELDS = {
    choice: (control, id) => {
      const options = control.choices.map((value) => made("option", { value, textContent: value || "as usual" }));
      const select = made("select", { id }, ...options);
      select.addEventListener("change", () => change_of(control, select.value));
      const more = control.key === "model" ? [button("Own ...", () => by("paste").showModal(), { ariaLabel: "A model of your own" })] : [];
      return { elements: [select, ...more], show: (one) => { select.value = one.value; } };
    },
    switch: (control, id) => {
      const box = made("input", { type: "checkbox", id, role: "switch" });
      box.addEventListener("change", () => change_of(control, String(box.checked)));
      return { elements: [box], show: (one) => { box.checked = one.value === "true"; } };
    },
    number: (control, id) => slider(control, id, "decimal"),
    text: (control, id) => slider(control, id, "text"),
    slow: (control, id) => {
      const rows = made("div", { className: "slow" }), add = button("Add one", () => { rows.append(part({ rank: 0, factor: 1.5 })); tell(); }, { id });
      const tell = () => {
        const parts = [...rows.children].map((one) => {
          const [what, which, factor] = [...one.querySelectorAll("select, input")].map((own) => own.value);
          return `{${what} = ${what === "link" ? JSON.stringify(which) : which || 0}, factor = ${factor || 1}}`;
        });
        change_of(control, parts.length ? `[${parts.join(", ")}]` : "");
      };
      const part = (given) => {
        const what = ["rank", "stage", "node", "link"].find((key) => key in given) ?? "rank";
        const select = made("select", { ariaLabel: "what is slow" }, ...["rank", "stage", "node", "link"].map((key) => made("option", { value: key, textContent: key })));
        select.value = what;
        const which = made("input", { value: given[what], ariaLabel: "which" }), factor = made("input", { value: given.factor ?? 1.5, ariaLabel: "times slower", inputMode: "decimal" });
        const one = made("div", {}, select, which, made("span", { textContent: "\u00d7" }), factor, button("\u2212", () => { one.remove(); tell(); }, { ariaLabel: "Remove" }));
        one.addEventListener("change", tell);
        return one;
      };
      return { elements: [rows, add], show: (one) => { if (!rows.contains(document.activeElement)) rows.replaceChildren(...(one.value ? JSON.parse(one.value) : []).map(part)); } };
    },
  };
  const slider = (control, id, inputMode) => {
    const text = made("input", { id, inputMode, autocomplete: "off", spellcheck: false, placeholder: control.hint });
    text.addEventListener("change", () => change_of(control, text.value.trim()));
    if (control.choices.length < 2) return { elements: [text], show: (one) => { if (text !== document.activeElement) text.value = one.value; } };
    const range = made("input", { type: "range", min: 0, max: control.choices.length - 1, step: 1, ariaLabel: control.label });
    const told = (value) => { text.value = value; range.setAttribute("aria-valuetext", value || control.hint || "as usual"); };
    range.addEventListener("input", () => { told(control.choices[range.value]); change_of(control, text.value, true); });
    range.addEventListener("change", () => { if (history.state?.moving) history.replaceState({ place, moving: false }, "", location.hash); const entry = tried.at(-1); if (entry) entry.moving = false; });
    const near = (value) => {
      const exact = control.choices.indexOf(value), number = parseFloat(value);
      if (exact >= 0 || Number.isNaN(number)) return Math.max(exact, 0);
      return Math.max(0, control.choices.findLastIndex((own) => parseFloat(own) <= number));
    };
    return { elements: [range, text], show: (one) => {
      if (range !== document.activeElement || state.settings[one.key] === undefined) range.value = near(one.value);
      if (text !== document.activeElement) told(one.value);
    } };
  };
  const changes = (of) => {
    const chips = Object.entries(of.settings).map(([key, value]) => {
      const text = `${key} = ${value.length > 30 ? `${value.slice(0, 27)}...` : value}`;
      return button(text, () => set({ [key]: null }), { className: "chip", title: "Take back", ariaLabel: `${text}: take back` });
    });
    by("changed").replaceChildren(...(chips.length ? [...chips, button("Reset", () => go({ base: of.base, settings: {} }), { className: "chip all" })] : []));
  };
  by("controls").addEventListener("submit", (event) => event.preventDefault());
  const other = () => {
    const [key, ...value] = by("other").value.split("=");
    by("other").setCustomValidity(value.length ? "" : "Write it like network.latency=2 us");
    if (!by("other").reportValidity()) return;
    by("other").value = "";
    set({ [key.trim()]: value.join("=").trim() });
  };
  by("other-set").addEventListener("click", other);
  by("other").addEventListener("keydown", (event) => { if (event.key === "Enter") other(); });

  // --- The user's own model.
  by("paste-file").addEventListener("change", async (event) => { by("paste-text").value = await event.target.files[0].text(); });
  by("paste-take").addEventListener("click", async () => {
    const found = await post("model", { text: by("paste-text").value });
    by("paste-fault").textContent = found.fault ?? "";
    if (found.fault) return;
    by("paste").close();
    set({ model: found.setting });
  });
  by("paste-close").addEventListener("click", () => by("paste").close());

  // --- Files and links.
  const NAMES = { toml: "Scenario (TOML)", py: "Python", html: "Report (HTML)" };
  let file = { name: "", text: "" };
  const exported = async (form) => {
    const menu = document.querySelector(".menu"), label = menu.firstElementChild, usual = label.textContent;
    menu.open = false;
    label.textContent = "Writing …"; // a report takes seconds
    const found = await post(`export/${form}`, state).finally(() => { label.textContent = usual; });
    file = found.fault ? { name: "not possible", text: found.fault } : found;
    if (form === "html" && !found.fault) { save(); return; }
    by("shown-title").textContent = file.name;
    by("shown-notes").replaceChildren(...(file.notes ?? []).map((note) => made("li", { textContent: note })));
    by("shown-text").textContent = file.text;
    by("shown-save").hidden = "fault" in found;
    by("shown").showModal();
  };
  const save = () => charts.save(file.name, file.text);
  const copy = async (text, element) => {
    await navigator.clipboard?.writeText(text).catch(() => {});
    const before = element.textContent;
    element.textContent = "Copied";
    setTimeout(() => { element.textContent = before; }, 1200);
  };
  by("shown-save").addEventListener("click", save);
  by("shown-copy").addEventListener("click", (event) => copy(file.text, event.target));
  by("shown-close").addEventListener("click", () => by("shown").close());
  by("shown").addEventListener("close", () => document.querySelector(".menu summary").focus());
  by("link").addEventListener("click", (event) => copy(location.href, event.target));

  by("undo").addEventListener("click", () => history.back());
  by("redo").addEventListener("click", () => history.forward());
  addEventListener("keydown", (event) => {
    const writes = event.target.matches?.("textarea, input:not([type=range]):not([type=checkbox])");
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z" || writes) return;
    event.preventDefault();
    if (event.shiftKey) history.forward(); else if (place > 0) history.back();
  });

  const start = async () => {
    const { names, forms } = await post("start", {});
    base = names[0];
    by("base").append(...names.map((name) => made("option", { value: name, textContent: name })));
    by("base").addEventListener("change", () => go({ base: by("base").value, settings: {} }));
    by("forms").append(...forms.map((form) => made("li", {}, button(NAMES[form] ?? `Arguments of ${form}`, () => exported(form)))));
    state = read();
    history.replaceState({ place: 0 }, "", location.hash);
    charts.watch();
    kept();
    await ask();
    document.body.dataset.ready = "yes";
  };
  start();
})();
