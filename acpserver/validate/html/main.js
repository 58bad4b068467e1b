// The page: filters, keys, the jumps from fault to fault, the theme.

const conversation = readConversation();
const find = (id) => document.getElementById(id);
const filters = { search: "", method: "", side: "", session: "", faulty: false };
const panel = new PanelView(conversation, goTo, say);
const timeline = new TimelineView(conversation, showMessage, markFound);

function showMessage(message) {
  panel.showMessage(message);
  markFound();
}

/** Mark the words that are searched for, wherever they can be seen. */
function markFound() {
  if (!CSS.highlights) return; // Firefox before 140
  CSS.highlights.delete("found");
  if (!filters.search) return;
  const ranges = [];
  const words = filters.search.toLowerCase();
  for (const place of [find("rows"), find("panel")]) {
    const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode.data.toLowerCase();
      for (let at = text.indexOf(words); at >= 0; at = text.indexOf(words, at + words.length)) {
        if (at + words.length > texts.currentNode.length) break; // lower case can be longer
        const range = new Range();
        range.setStart(texts.currentNode, at);
        range.setEnd(texts.currentNode, at + words.length);
        ranges.push(range);
      }
    }
  }
  CSS.highlights.set("found", new Highlight(...ranges));
}

/** Go to a message from anywhere, if need be by taking the filters away; null leads to the overview. */
function goTo(index) {
  if (index === null) {
    panel.showFaults();
    find("panel").focus();
    return;
  }
  if (timeline.position(index) < 0) resetFilters();
  timeline.select(index);
  find("scroller").focus();
}

/** The next (1) or previous (-1) fault among the messages that are shown. */
function jump(step) {
  const places = timeline.shown.filter((index) => isFault(conversation.messages[index].level));
  if (!places.length) {
    say("No fault among the shown messages");
    return;
  }
  const here = timeline.selected ?? (step > 0 ? -1 : Infinity);
  const at = lowerBound(places, here);
  let to = step > 0 ? (places[at] === here ? at + 1 : at) : at - 1;
  to = (to + places.length) % places.length; // round and round
  timeline.select(places[to]);
  say(`Faulty message ${to + 1} of ${places.length}`);
}

function say(text) {
  find("spoken").textContent = text;
  find("count").textContent = `${text} · ${countText()}`;
}

function countText() {
  const all = conversation.messages.length;
  const shown = timeline.shown.length;
  return shown === all ? plural(all, "message") : `${shown.toLocaleString("en")} of ${plural(all, "message")}`;
}

function applyFilters() {
  timeline.show(filtered(conversation.messages, filters), filters.session);
  find("count").textContent = find("spoken").textContent = countText();
  find("reset").hidden = !Object.values(filters).some(Boolean);
}

function resetFilters() {
  Object.assign(filters, { search: "", method: "", side: "", session: "", faulty: false });
  for (const name of ["search", "method", "side", "session"]) find(name).value = "";
  find("faulty").checked = false;
  applyFilters();
}

function setFaulty(faulty) {
  find("faulty").checked = filters.faulty = faulty;
  applyFilters();
}

function connectFilters() {
  let timer = 0;
  find("search").addEventListener("input", (event) => {
    filters.search = event.target.value;
    clearTimeout(timer);
    timer = setTimeout(applyFilters, 80); // not at every letter
  });
  for (const name of ["method", "side", "session"]) {
    find(name).addEventListener("change", (event) => {
      filters[name] = event.target.value;
      applyFilters();
    });
  }
  find("faulty").addEventListener("change", (event) => setFaulty(event.target.checked));
  find("reset").addEventListener("click", resetFilters);
  find("filters").addEventListener("submit", (event) => {
    event.preventDefault();
    find("scroller").focus();
    if (timeline.position(timeline.selected) < 0) timeline.move(1);
  });
  find("next").addEventListener("click", () => jump(1));
  find("previous").addEventListener("click", () => jump(-1));
}

/** The choices of the two lists that depend on the recording. */
function fillLists() {
  const method = find("method");
  const option = (list, value, text) => {
    const element = make("option", "", text);
    element.value = value;
    list.append(element);
  };
  option(method, "", "all methods");
  option(method, WITHOUT_CHUNKS, "all without chunks");
  const tags = tally(conversation.messages, (message) => message.tag && `${message.method}\n${message.tag}`);
  for (const [name, count] of tally(conversation.messages, (message) => message.method)) {
    option(method, name, `${name} (${count})`);
    for (const [value, times] of tags) {
      const [owner, tag] = value.split("\n");
      if (owner === name) option(method, value, `\u2003${tag} (${times})`);
    }
  }
  const { sessions } = conversation;
  option(find("session"), "", "all sessions");
  let number = 0;
  for (const [name, count] of sessions) {
    number += 1;
    option(find("session"), name, `${number} · ${name} (${count})`);
  }
  find("session").hidden = sessions.size < 2;
}

function fillHead() {
  const { messages, spans, faults } = conversation;
  const count = (kind) => spans.filter((span) => span.kind === kind).length;
  const timed = messages.filter((message) => message.time !== null);
  const facts = [plural(messages.length, "message")];
  if (timed.length > 1) facts.push(duration(secondsBetween(timed[0], timed[timed.length - 1])));
  facts.push(plural(count("turn"), "turn"), plural(count("tool"), "tool call"));
  find("facts").textContent = facts.join(" · ");
  for (const level of ["error", "warning", "remark"]) {
    const found = faults.filter((fault) => fault.level === level);
    if (!found.length) continue;
    const chip = make("button", `chip ${level}`, plural(found.length, level));
    chip.type = "button";
    chip.title = `To the first ${level}`;
    chip.addEventListener("click", () => {
      const first = found.find((fault) => fault.row !== null);
      goTo(first ? first.row : null);
    });
    find("verdict").append(chip);
  }
  const hasFault = faults.some((fault) => isFault(fault.level));
  if (!hasFault) find("verdict").prepend(make("span", "chip none", "no faults"));
  find("next").disabled = find("previous").disabled = !hasFault;
}

/** As the system has it, light, dark, and round again. The choice is kept where the browser allows it. */
function connectTheme() {
  const names = ["system", "light", "dark"];
  const set = (name) => {
    document.documentElement.dataset.theme = name;
    find("theme").textContent = `Theme: ${name}`;
  };
  const kept = () => {
    try {
      return localStorage.getItem("acp-validate-theme");
    } catch {
      return null; // a page from a file may have no storage
    }
  };
  set(names.includes(kept()) ? kept() : "system");
  find("theme").addEventListener("click", () => {
    const next = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
    set(next);
    try {
      localStorage.setItem("acp-validate-theme", next);
    } catch {
      // It then holds for this visit only.
    }
  });
}

/** Drag it, or move it with the arrow keys. */
function connectSplitter() {
  const splitter = find("splitter");
  let width = 32; // percent
  const set = (percent) => {
    width = Math.min(75, Math.max(20, percent));
    document.documentElement.style.setProperty("--panel", `${width}%`);
    splitter.setAttribute("aria-valuenow", Math.round(width));
  };
  set(width);
  splitter.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: 3, ArrowRight: -3 }[event.key];
    if (step) set(width + step);
  });
  splitter.addEventListener("pointerdown", (event) => {
    splitter.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  splitter.addEventListener("pointermove", (event) => {
    if (splitter.hasPointerCapture(event.pointerId)) set(100 - (100 * event.clientX) / window.innerWidth);
  });
}

/** From a request to its answer, or back. */
function toPartner() {
  if (timeline.selected === null) return;
  const message = conversation.messages[timeline.selected];
  const partner = message.answers ?? message.answer;
  if (partner === null) say(message.kind === "request" ? "Never answered" : "No request and no answer");
  else goTo(partner);
}

const KEYS = {
  n: () => jump(1),
  p: () => jump(-1),
  r: toPartner,
  f: () => setFaulty(!filters.faulty),
  o: () => goTo(null),
  t: () => find("theme").click(),
  "/": () => find("search").focus(),
  "?": () => find("keys").showModal(),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || find("keys").open) return;
  const isTyping = event.target.matches("input[type=search], select");
  if (event.key === "Escape") {
    if (event.target === find("search")) {
      find("search").value = filters.search = "";
      applyFilters();
    }
    find("scroller").focus();
  } else if (event.key === "Enter" && event.target === find("scroller")) {
    find("panel").focus();
  } else if (!isTyping && KEYS[event.key]) {
    KEYS[event.key]();
  } else return;
  event.preventDefault();
}

/** The address may name a line: page.html#42. */
function goToAddress() {
  const line = Number(location.hash.slice(1));
  const message = line ? conversation.messages.find((each) => each.line === line) : null;
  if (message) goTo(message.index);
}

fillHead();
fillLists();
connectFilters();
connectTheme();
connectSplitter();
find("help").addEventListener("click", () => find("keys").showModal());
document.addEventListener("keydown", onKey);
applyFilters();
panel.showFaults();
find("scroller").focus({ preventScroll: true });
goToAddress();
window.addEventListener("hashchange", goToAddress);
