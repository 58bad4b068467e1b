"use strict";
// The conversation as data: what page.py wrote, with what follows from it. Nothing here touches the page,
// apart from reading the data block once.

const MOST_LANES = 8; // bars side by side; what needs more is not drawn
const WITHOUT_CHUNKS = "-chunks"; // a choice of the method filter; faulty chunks stay
const RANK = { "": 0, remark: 1, warning: 2, error: 3 };

/** Errors and warnings are faults, remarks are none. */
function isFault(level) {
  return RANK[level] >= RANK.warning;
}

/** Everything that is known: messages (with their faults and bars), spans, faults, and a few counts. */
function readConversation() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const messages = data.rows.map(toMessage);
  const faults = data.findings.map(([row, rule, level, side, path, text, related]) =>
    ({ row, rule, level, side, path, text, related }));
  const spans = data.spans.map(([kind, side, first, last, label, hasEnd, session]) =>
    ({ kind, side, first, last: last ?? Infinity, label, hasEnd, session }));
  connect(messages, faults);
  const lanes = { client: layOut(spans, messages, "client"), agent: layOut(spans, messages, "agent") };
  const sessions = tally(messages, (message) => message.session);
  return { title: data.title, leftOut: data.leftOut, messages, faults, spans, lanes, sessions };
}

function toMessage(row, index) {
  const [line, time, side, kind, method, tag, id, session, summary, answers, text, size] = row;
  return { index, line, time, side, kind, method, tag, id, session, summary, answers, text, size,
    answer: null, gap: null, delay: null, faults: [], level: "", lanes: {} };
}

/** Request and answer know each other; messages know their delays and faults. */
function connect(messages, faults) {
  let before = null;
  for (const message of messages) {
    message.gap = secondsBetween(before, message);
    before = message;
    if (message.answers === null) continue;
    const request = messages[message.answers];
    request.answer = message.index;
    message.delay = secondsBetween(request, message);
  }
  for (const fault of faults) {
    const message = messages[fault.row];
    if (!message) continue;
    message.faults.push(fault);
    if (RANK[fault.level] > RANK[message.level]) message.level = fault.level;
  }
  for (const message of messages) message.faults.sort((a, b) => RANK[b.level] - RANK[a.level]);
}

function secondsBetween(earlier, later) {
  return earlier === null || earlier.time === null || later.time === null ? null : later.time - earlier.time;
}

/**
 * Gives each span of one side the first free lane, and each message the spans that pass it, by lane.
 * Neighbouring messages share one array as long as nothing begins or ends. Returns the number of lanes.
 */
function layOut(spans, messages, side) {
  const own = spans.filter((span) => span.side === side);
  let passing = [];
  let ending = new Map(); // row -> spans that end there
  let most = 0;
  let next = 0;
  for (const message of messages) {
    const row = message.index;
    if (next < own.length && own[next].first === row) passing = passing.slice();
    for (; next < own.length && own[next].first === row; next += 1) {
      let lane = 0;
      while (passing[lane]) lane += 1;
      if (lane >= MOST_LANES) continue;
      passing[lane] = own[next];
      most = Math.max(most, lane + 1);
      ending.set(own[next].last, [...(ending.get(own[next].last) ?? []), lane]);
    }
    message.lanes[side] = passing;
    if (!ending.has(row)) continue;
    passing = passing.slice();
    for (const lane of ending.get(row)) passing[lane] = undefined;
    ending.delete(row);
  }
  return most;
}

/** The indexes of the messages that fit all filters. */
function filtered(messages, filters) {
  const hasChunks = filters.method !== WITHOUT_CHUNKS;
  const [method, tag] = hasChunks ? filters.method.split("\n") : ["", ""];
  const needle = filters.search ? finder(filters.search) : null;
  const found = [];
  for (const message of messages) {
    if (filters.faulty && !isFault(message.level)) continue;
    if (filters.side && message.side !== filters.side) continue;
    if (method && message.method !== method) continue;
    if (tag && message.tag !== tag) continue;
    if (!hasChunks && message.tag.endsWith("_chunk") && !message.level) continue;
    if (filters.session && message.session !== filters.session) continue;
    if (needle && !needle(message)) continue;
    found.push(message.index);
  }
  return found;
}

/** A test whether a message holds the words, in any case, as a person or as JSON would write them. */
function finder(words) {
  const escaped = JSON.stringify(words).slice(1, -1);
  const both = [...new Set([words, escaped])].map((text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const pattern = new RegExp(both.join("|"), "i");
  return (message) => pattern.test(message.text) || pattern.test(message.method)
    || message.faults.some((fault) => pattern.test(fault.text) || pattern.test(fault.rule));
}

/** How often each value stands in the messages, the first ones first. */
function tally(messages, valueOf) {
  const counts = new Map();
  for (const message of messages) {
    const value = valueOf(message);
    if (value) counts.set(value, (counts.get(value) ?? 0) + 1);
  }
  return counts;
}

/** The position of the first number in a sorted list that is not less than `value`. */
function lowerBound(list, value) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Seconds as a person says them: "310 µs", "4.2 ms", "1.35 s", "2 min 5 s". */
function duration(seconds) {
  if (seconds === null) return "";
  const size = Math.abs(seconds);
  if (size === 0) return "0";
  if (size < 0.0009995) return `${Math.round(seconds * 1e6)} µs`;
  if (size < 0.9995) return `${short(seconds * 1e3)} ms`;
  if (size < 59.95) return `${short(seconds)} s`;
  const whole = Math.round(seconds);
  const minutes = Math.trunc(whole / 60);
  if (Math.abs(minutes) < 60) return `${minutes} min ${Math.abs(whole % 60)} s`;
  return `${Math.trunc(minutes / 60)} h ${Math.abs(minutes % 60)} min`;
}

function short(number) {
  const digits = Math.abs(number) < 9.995 ? 2 : Math.abs(number) < 99.95 ? 1 : 0;
  return String(Number(number.toFixed(digits)));
}

function bytes(size) {
  if (size < 1000) return `${size} bytes`;
  return size < 1e6 ? `${short(size / 1e3)} kB` : `${short(size / 1e6)} MB`;
}

function plural(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}
