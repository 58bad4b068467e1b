// The timeline: only the rows that can be seen exist in the page, so that 50,000 messages cost as much as
// fifty. Everything is one list box; the selected row is its active descendant.

const ROW = 22; // pixels, as in page.css
const SPARE = 8; // rows above and below the visible ones
const LANE = 9; // pixels of one bar, with its space
const LONG_SILENCE = 1; // seconds
const MARKS = 240; // places of the map beside the scroll bar

class TimelineView {
  /** `onSelect` is called with each newly selected message, `onDraw` when other rows are to be seen. */
  constructor(conversation, onSelect, onDraw) {
    this.messages = conversation.messages;
    this.sessions = [...conversation.sessions.keys()];
    this.session = ""; // the only session that is shown, if any
    this.onSelect = onSelect;
    this.onDraw = onDraw;
    this.shown = []; // indexes of the messages that fit the filters
    this.selected = null; // index of a message
    this.scroller = document.getElementById("scroller");
    this.rows = document.getElementById("rows");
    this.map = document.getElementById("map");
    this.window = document.getElementById("window");
    this.built = new Map(); // position in `shown` -> element
    this.isDrawing = false;
    this.start = conversation.messages.find((message) => message.time !== null)?.time ?? null;
    const root = document.getElementById("timeline");
    root.classList.toggle("timeless", this.start === null);
    root.style.setProperty("--client-lanes", `${conversation.lanes.client * LANE}px`);
    root.style.setProperty("--agent-lanes", `${conversation.lanes.agent * LANE}px`);
    this.scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    this.scroller.addEventListener("keydown", (event) => this.onKey(event));
    this.rows.addEventListener("click", (event) => this.onClick(event));
    this.map.addEventListener("click", (event) => this.onMap(event));
    new ResizeObserver(() => {
      // The headings stand above the rows, not above their scroll bar.
      root.style.setProperty("--scrollbar", `${this.scroller.offsetWidth - this.scroller.clientWidth}px`);
      this.draw();
    }).observe(this.scroller);
  }

  /** Show these messages, and keep the selected one, or else the topmost one, where it was. */
  show(indexes, session) {
    const anchor = this.anchor();
    this.session = session;
    this.shown = indexes;
    for (const element of this.built.values()) element.remove();
    this.built.clear();
    this.rows.style.height = `${indexes.length * ROW}px`;
    document.getElementById("nothing").hidden = indexes.length > 0;
    this.scroller.scrollTop = lowerBound(indexes, anchor.index) * ROW - anchor.offset;
    this.drawMap();
    this.drawNow();
  }

  anchor() {
    const position = this.selected === null ? -1 : this.position(this.selected);
    if (position >= 0 && this.isVisible(position)) {
      return { index: this.selected, offset: position * ROW - this.scroller.scrollTop };
    }
    if (this.selected !== null && position < 0) {
      return { index: this.selected, offset: this.scroller.clientHeight / 3 };
    }
    const top = Math.floor(this.scroller.scrollTop / ROW);
    return { index: this.shown[top] ?? 0, offset: top * ROW - this.scroller.scrollTop };
  }

  /** The place of a message among the shown ones, -1 if it is not shown. */
  position(index) {
    const position = lowerBound(this.shown, index);
    return this.shown[position] === index ? position : -1;
  }

  isVisible(position) {
    const top = position * ROW - this.scroller.scrollTop;
    return top >= 0 && top + ROW <= this.scroller.clientHeight;
  }

  /** Select a shown message and bring it into view: just so after a step, else with much around it. */
  select(index, isStep = false) {
    const position = this.position(index);
    if (position < 0) return;
    this.selected = index;
    if (!this.isVisible(position)) {
      const top = position * ROW;
      const height = this.scroller.clientHeight;
      const isAbove = top < this.scroller.scrollTop;
      const room = isStep ? (isAbove ? 0 : height - ROW) : height / 3;
      this.scroller.scrollTop = top - room;
    }
    this.drawNow();
    this.onSelect(this.messages[index]);
  }

  /** Draw at the next frame, once, however often this is asked for. */
  draw() {
    if (this.isDrawing) return;
    this.isDrawing = true;
    requestAnimationFrame(() => this.drawNow());
  }

  drawNow() {
    this.isDrawing = false;
    const height = this.scroller.clientHeight;
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW) - SPARE);
    const last = Math.min(this.shown.length, Math.ceil((this.scroller.scrollTop + height) / ROW) + SPARE);
    for (const [position, element] of this.built) {
      if (position >= first && position < last) continue;
      element.remove();
      this.built.delete(position);
    }
    for (let position = first; position < last; position += 1) {
      if (!this.built.has(position)) this.build(position);
    }
    this.markSelected();
    this.onDraw();
    const whole = Math.max(1, this.shown.length * ROW, height);
    this.window.style.top = `${(100 * this.scroller.scrollTop) / whole}%`;
    this.window.style.height = `${Math.max(1, (100 * height) / whole)}%`;
  }

  markSelected() {
    const position = this.selected === null ? -1 : this.position(this.selected);
    for (const [place, element] of this.built) {
      element.setAttribute("aria-selected", String(place === position));
    }
    // Only an element that exists may be named.
    if (this.built.has(position)) this.scroller.setAttribute("aria-activedescendant", `m${this.selected}`);
    else this.scroller.removeAttribute("aria-activedescendant");
  }

  build(position) {
    const message = this.messages[this.shown[position]];
    const row = make("div", `row ${message.side} ${message.kind} level-${message.level || "none"}`);
    row.id = `m${message.index}`;
    row.dataset.index = message.index;
    row.style.top = `${position * ROW}px`;
    row.setAttribute("role", "option");
    row.setAttribute("aria-label", spokenRow(message));
    row.setAttribute("aria-setsize", this.shown.length);
    row.setAttribute("aria-posinset", position + 1);
    const gap = make("span", message.gap >= LONG_SILENCE ? "gap long" : "gap");
    if (message.gap !== null) gap.textContent = `+${duration(message.gap)}`;
    const time = message.time === null ? "" : (message.time - this.start).toFixed(3);
    row.append(make("span", "line", message.line), make("span", "time", time), gap);
    const words = wordsOf(message);
    if (message.session && this.sessions.length > 1) words.unshift(this.sessionOf(message));
    const beside = besideOf(message);
    const isClient = message.side === "client";
    const client = make("span", isClient ? "client words" : "client beside");
    const agent = make("span", isClient ? "agent beside" : "agent words");
    client.append(...(isClient ? words : beside));
    agent.append(...(isClient ? beside : words));
    row.append(client, stripOf(message, this.session), agent);
    this.rows.append(row);
    this.built.set(position, row);
  }

  /** Which session, by its number. */
  sessionOf(message) {
    const badge = make("span", "session", this.sessions.indexOf(message.session) + 1);
    badge.title = `session ${message.session}`;
    return badge;
  }

  /** The map: where the faults are in all that is shown. */
  drawMap() {
    this.map.querySelectorAll(".mark").forEach((mark) => mark.remove());
    const levels = new Array(MARKS).fill("");
    this.shown.forEach((index, position) => {
      const { level } = this.messages[index];
      const place = Math.floor((position / this.shown.length) * MARKS);
      if (RANK[level] > RANK[levels[place]]) levels[place] = level;
    });
    levels.forEach((level, place) => {
      if (!level) return;
      const mark = make("div", `mark ${level}`);
      mark.style.top = `${(100 * place) / MARKS}%`;
      this.map.append(mark);
    });
  }

  onMap(event) {
    const box = this.map.getBoundingClientRect();
    const part = (event.clientY - box.top) / box.height;
    this.scroller.scrollTop = part * this.shown.length * ROW - this.scroller.clientHeight / 2;
  }

  onClick(event) {
    const row = event.target.closest(".row");
    if (row) this.select(Number(row.dataset.index));
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    this.move(step);
  }

  /** Select the message that many rows further; the first visible one when nothing is selected. */
  move(step) {
    if (!this.shown.length) return;
    let from = this.selected === null ? -1 : this.position(this.selected);
    if (from < 0 && Number.isFinite(step)) {
      from = Math.ceil(this.scroller.scrollTop / ROW) - step;
    }
    const to = Math.min(this.shown.length - 1, Math.max(0, from + step));
    this.select(this.shown[to], true);
  }
}

/** Method, tag, id and what it is about. */
function wordsOf(message) {
  const parts = [];
  const isAnswer = message.kind === "response" || message.kind === "error";
  if (isAnswer) parts.push(make("span", "state", message.kind === "error" ? "error" : "ok"));
  if (message.method) parts.push(make("b", "method", message.tag || message.method));
  else if (message.kind === "broken") parts.push(make("b", "method", "no message"));
  if (message.id) parts.push(make("span", "id", message.id));
  parts.push(make("span", "about", message.summary));
  return parts;
}

/** What is wrong with a message, for the free column of its row. */
function besideOf(message) {
  const [fault] = message.faults;
  if (!fault) return [];
  const parts = [make("b", `rule ${fault.level}`, fault.rule)];
  if (message.faults.length > 1) parts.push(make("span", "more", `+${message.faults.length - 1}`));
  parts.push(make("span", "fault", fault.text));
  return parts;
}

/** The middle of a row: two lifelines, the bars that pass, and the arrow. */
function stripOf(message, session) {
  const strip = make("span", "strip");
  const arrow = make("span", `arrow ${message.kind}`);
  if (message.delay !== null) arrow.append(make("span", "delay", duration(message.delay)));
  strip.append(arrow);
  for (const side of ["client", "agent"]) {
    message.lanes[side].forEach((span, lane) => {
      if (!span || (session && span.session !== session)) return;
      const bar = make("i", `lane ${side} ${span.kind}`);
      bar.classList.toggle("begins", span.first === message.index);
      bar.classList.toggle("ends", span.last === message.index);
      bar.classList.toggle("unended", !span.hasEnd);
      bar.style.setProperty("--lane", lane);
      bar.title = span.label;
      strip.append(bar);
    });
  }
  return strip;
}

function spokenRow(message) {
  const parts = [`Line ${message.line}, from the ${message.side}`, message.kind];
  if (message.method) parts.push(`${message.method} ${message.tag}`.trim());
  if (message.summary) parts.push(message.summary);
  if (message.delay !== null) parts.push(`after ${duration(message.delay)}`);
  for (const fault of message.faults) parts.push(`${fault.level} ${fault.rule}: ${fault.text}`);
  return parts.join(", ");
}

/** An element with classes and text. */
function make(name, classes = "", text = "") {
  const element = document.createElement(name);
  if (classes) element.className = classes.trim();
  if (text !== "") element.textContent = text;
  return element;
}
