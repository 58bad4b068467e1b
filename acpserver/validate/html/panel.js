// The panel beside the timeline: all faults by rule, or one message with everything that is known of it.

const MOST_LINES = 3000; // of one message's JSON
const KINDS = { turn: "turn", tool: "tool call", wait: "waits for a permission", call: "request" };

class PanelView {
  /** `goTo` is called with the index of a message that a link leads to, `say` with news in a few words. */
  constructor(conversation, goTo, say) {
    this.conversation = conversation;
    this.goTo = goTo;
    this.say = say;
    this.element = document.getElementById("panel");
  }

  /** All faults, by rule, side and level: the worst first. */
  showFaults() {
    const { faults, leftOut } = this.conversation;
    const count = faults.filter((fault) => isFault(fault.level)).length;
    const parts = [make("h2", "", count ? plural(count, "fault") : "No fault")];
    if (!count) parts.push(make("p", "quiet", "Every message keeps the rules of the protocol."));
    for (const group of groupsOf(faults)) parts.push(this.group(group));
    if (leftOut) parts.push(make("p", "quiet", `${plural(leftOut, "more message")} did not fit on this page.`));
    parts.push(make("p", "quiet", "Select a message to see it whole. Press ? for all keys."));
    this.fill(parts);
  }

  group(faults) {
    const [first] = faults;
    const box = make("section", `group ${first.level}`);
    const head = make("h3");
    head.append(make("b", `rule ${first.level}`, first.rule), make("span", "", aboutOf(first)));
    if (faults.length > 1) head.append(make("span", "more", `× ${faults.length.toLocaleString("en")}`));
    box.append(head);
    for (const fault of faults.slice(0, 5)) box.append(this.faultLine(fault));
    if (faults.length > 5) box.append(make("p", "quiet", `and ${faults.length - 5} more`));
    return box;
  }

  faultLine(fault) {
    if (fault.row === null) return make("p", "", fault.text);
    const button = this.link(fault.row, "");
    button.classList.add("wide");
    button.append(make("span", "place", this.placeOf(fault.row)), make("span", "", fault.text));
    return button;
  }

  /** One message: what it is, what is wrong with it, what it belongs to, and its JSON. */
  showMessage(message) {
    const back = make("button", "back", "All faults");
    back.type = "button";
    back.title = "Overview of all faults (o)";
    back.addEventListener("click", () => this.goTo(null));
    const title = make("h2", "", message.method || message.kind);
    if (message.tag) title.append(make("span", "tag", message.tag));
    const parts = [back, title, this.facts(message)];
    for (const fault of message.faults) parts.push(this.fault(fault));
    const whole = make("div", "whole");
    whole.append(this.copyButton(message), jsonOf(message));
    parts.push(whole);
    this.fill(parts);
    this.element.querySelector("pre .fault")?.scrollIntoView({ block: "nearest" });
  }

  copyButton(message) {
    const button = make("button", "copy", "Copy");
    button.type = "button";
    button.title = "Copy the message";
    button.addEventListener("click", () => {
      const copying = navigator.clipboard.writeText(message.text);
      copying.then(() => this.say("Copied"), () => this.say("The browser did not allow it"));
    });
    return button;
  }

  facts(message) {
    const list = make("dl", "facts");
    const fact = (name, ...values) => {
      const pair = make("div");
      const value = make("dd");
      value.append(...values);
      pair.append(make("dt", "", name), value);
      list.append(pair);
    };
    const to = message.side === "client" ? "agent" : "client";
    fact("Message", `line ${message.line}, ${message.kind} from ${message.side} to ${to}, ${bytes(message.size)}`);
    if (message.time !== null) {
      fact("Time", clock(message.time), message.gap === null ? "" : `, ${duration(message.gap)} after the last`);
    }
    if (message.answers !== null) {
      fact("Answers", this.link(message.answers, this.placeOf(message.answers)),
        message.delay === null ? "" : ` after ${duration(message.delay)}`);
    }
    if (message.answer !== null) {
      const { delay } = this.conversation.messages[message.answer];
      fact("Answered", this.link(message.answer, `in ${this.placeOf(message.answer)}`),
        delay === null ? "" : ` after ${duration(delay)}`);
    } else if (message.kind === "request") fact("Answered", "not in this recording");
    if (message.session) fact("Session", message.session);
    for (const side of ["agent", "client"]) {
      for (const span of message.lanes[side]) {
        const isOwn = span?.session && span.session === message.session;
        if (isOwn && span.first !== message.index) fact("Within", ...this.within(span));
      }
    }
    return list;
  }

  within(span) {
    const end = this.conversation.messages[span.last];
    const time = end ? secondsBetween(this.conversation.messages[span.first], end) : null;
    return [`${KINDS[span.kind]} `, this.link(span.first, span.label), time === null ? "" : ` ${duration(time)}`];
  }

  fault(fault) {
    const box = make("section", `group ${fault.level}`);
    const head = make("h3");
    head.append(make("b", `rule ${fault.level}`, fault.rule), make("span", "", aboutOf(fault)));
    if (fault.path) head.append(make("code", "", fault.path));
    box.append(head, make("p", "", fault.text));
    if (fault.related !== null) {
      const line = make("p", "", "See ");
      line.append(this.link(fault.related, this.placeOf(fault.related)));
      box.append(line);
    }
    return box;
  }

  placeOf(row) {
    return `line ${this.conversation.messages[row].line}`;
  }

  link(row, text) {
    const button = make("button", "link", text);
    button.type = "button";
    button.addEventListener("click", () => this.goTo(row));
    return button;
  }

  fill(parts) {
    this.element.replaceChildren(...parts);
    this.element.scrollTop = 0;
  }
}

function aboutOf(fault) {
  return isFault(fault.level) ? `${fault.level} of the ${fault.side}` : `remark on the ${fault.side}`;
}

/** Faults that differ in their place only stand together; errors come first, then what is frequent. */
function groupsOf(faults) {
  const groups = new Map();
  for (const fault of faults) {
    const name = `${fault.rule} ${fault.side} ${fault.level}`;
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(fault);
  }
  return [...groups.values()].sort((a, b) => RANK[b[0].level] - RANK[a[0].level] || b.length - a.length);
}

/** A time of day when the recording has one, else plain seconds. */
function clock(seconds) {
  if (seconds < 1e9) return `${seconds.toFixed(3)} s`;
  return new Date(seconds * 1000).toISOString().replace("T", " ").replace("Z", " UTC");
}

/** The message's text; as indented JSON, with the faulty places marked, when it can be parsed. */
function jsonOf(message) {
  const box = make("pre");
  box.tabIndex = 0;
  box.setAttribute("aria-label", "The message");
  let value;
  try {
    value = JSON.parse(message.text);
  } catch {
    // Not JSON, or cut: it is shown as it stands.
    box.append(make("code", "raw", message.text));
    return box;
  }
  const lines = [];
  writeLines(lines, value, "", 0, "", "");
  const marked = placesOf(message.faults, new Set(lines.map((line) => line.path)));
  for (const { path, depth, parts } of lines.slice(0, MOST_LINES)) {
    const line = make("code", marked.has(path) ? `fault ${marked.get(path).level}` : "");
    line.style.setProperty("--depth", depth);
    if (marked.has(path)) line.title = marked.get(path).text;
    line.append(...parts);
    box.append(line);
  }
  if (lines.length > MOST_LINES) box.append(make("code", "raw", `… ${lines.length - MOST_LINES} more lines`));
  return box;
}

/** Faults by the path of the line that shows them: what is missing is shown by the nearest thing around it. */
function placesOf(faults, paths) {
  const places = new Map();
  for (const fault of faults) {
    let path = fault.path.replace(/\[(\d+)\]/g, ".$1");
    while (path && !paths.has(path)) path = path.slice(0, Math.max(0, path.lastIndexOf(".")));
    if (path && !places.has(path)) places.set(path, fault);
  }
  return places;
}

/** JSON as lines of { path, depth, parts }. After each \n in a string follows a real line break. */
function writeLines(lines, value, path, depth, name, tail) {
  if (lines.length > MOST_LINES) return;
  const head = name ? [make("span", "name", name), ": "] : [];
  if (value === null || typeof value !== "object") {
    const kind = typeof value === "string" ? "string" : "literal";
    const text = JSON.stringify(value).replace(/\\./g, (escape) => (escape === "\\n" ? "\\n\n" : escape));
    lines.push({ path, depth, parts: [...head, make("span", kind, text), tail] });
    return;
  }
  const isList = Array.isArray(value);
  const [open, close] = isList ? "[]" : "{}";
  const names = Object.keys(value);
  if (!names.length) {
    lines.push({ path, depth, parts: [...head, open + close + tail] });
    return;
  }
  lines.push({ path, depth, parts: [...head, open] });
  names.forEach((key, place) => {
    const below = path ? `${path}.${key}` : key;
    const comma = place < names.length - 1 ? "," : "";
    writeLines(lines, value[key], below, depth + 1, isList ? "" : JSON.stringify(key), comma);
  });
  lines.push({ path: `${path} end`, depth, parts: [close + tail] });
}
