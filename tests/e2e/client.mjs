// Drives an agent with the client of the official TypeScript SDK and prints what happened as one JSON object.
//
//   node client.mjs SCENARIO SDK_FOLDER CWD ANSWER COMMAND [ARGUMENT...]
//
// SDK_FOLDER holds node_modules; ANSWER is the kind of permission option to choose. The agent is a child with
// pipes, ended by closing its input.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [scenario, folder, cwd, answer, command, ...args] = process.argv.slice(2);
const resolve = createRequire(join(folder, "package.json")).resolve;
const acp = await import(pathToFileURL(resolve("@agentclientprotocol/sdk")).href);

const updates = [];
const permissions = [];
const watchers = [];

/** Resolves at the first update that satisfies the condition. */
function until(condition) {
  return new Promise((done) => watchers.push({ condition, done }));
}

const app = acp
  .client({ name: "typescript-sdk-test" })
  .onNotification(acp.methods.client.session.update, ({ params }) => {
    updates.push(params.update);
    for (const { condition, done } of watchers) if (condition(params.update)) done(params.update);
  })
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    permissions.push(params);
    const chosen = params.options.find((option) => option.kind === answer);
    return { outcome: chosen ? { outcome: "selected", optionId: chosen.optionId } : { outcome: "cancelled" } };
  });

/** The code and details of the error with which a promise fails. */
async function failure(promise) {
  try {
    return { result: await promise };
  } catch (error) {
    return { code: error.code, message: error.message, data: error.data };
  }
}

const { agent: to } = acp.methods;
const text = (line) => [{ type: "text", text: line }];
const hello = { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {}, clientInfo: { name: "ts", version: "1" } };

async function open(agent) {
  const handshake = await agent.request(to.initialize, hello);
  await agent.request(to.authenticate, { methodId: handshake.authMethods[0].id });
  const session = await agent.request(to.session.new, { cwd, mcpServers: [] });
  return { handshake, session, sessionId: session.sessionId };
}

const scenarios = {
  /** Handshake, session, streamed text, thoughts and a plan. */
  async stream(agent) {
    const { handshake, session, sessionId } = await open(agent);
    const prompt = text("think deep\nplan one; two\nsay hello\nstream 300");
    return { handshake, session, answer: await agent.request(to.session.prompt, { sessionId, prompt }) };
  },

  /** A file written and a command run, each after the permission that ANSWER says. */
  async tools(agent) {
    const { sessionId } = await open(agent);
    const prompt = text("write note.txt: hello\nrun echo ran > ran.txt\nread note.txt\nsay end");
    return { answer: await agent.request(to.session.prompt, { sessionId, prompt }) };
  },

  /** One prompt with whatever the model behind the server makes of it. */
  async ask(agent) {
    const { sessionId } = await open(agent);
    return { answer: await agent.request(to.session.prompt, { sessionId, prompt: text("Write the note.") }) };
  },

  async options(agent) {
    const { sessionId } = await open(agent);
    const changed = until((update) => update.sessionUpdate === "current_mode_update");
    const mode = await agent.request(to.session.setMode, { sessionId, modeId: "accept_edits" });
    const update = await changed;
    const options = await agent.request(to.session.setConfigOption, { sessionId, configId: "mode", value: "read_only" });
    const unknown = await failure(agent.request(to.session.setMode, { sessionId, modeId: "nope" }));
    const answered = await agent.request(to.session.prompt, { sessionId, prompt: text("write note.txt: hello") });
    return { mode, update, options, unknown, answer: answered };
  },

  async cancel(agent) {
    const { sessionId } = await open(agent);
    const running = until((update) => update.status === "in_progress");
    const turn = agent.request(to.session.prompt, { sessionId, prompt: text("run sleep 600") });
    await running;
    await agent.notify(to.session.cancel, { sessionId });
    const first = await turn;
    const next = await agent.request(to.session.prompt, { sessionId, prompt: text("say again") });
    return { answer: first, next };
  },

  /** The request itself is aborted: the SDK sends `$/cancel_request`. */
  async abort(agent) {
    const { sessionId } = await open(agent);
    const running = until((update) => update.status === "in_progress");
    const abort = new AbortController();
    const options = { cancellationSignal: abort.signal };
    const turn = agent.request(to.session.prompt, { sessionId, prompt: text("run sleep 600") }, options);
    await running;
    abort.abort();
    return { answer: await turn };
  },

  async close(agent) {
    const { sessionId } = await open(agent);
    const turn = agent.request(to.session.prompt, { sessionId, prompt: text("sleep 600") });
    const closed = await agent.request(to.session.close, { sessionId });
    const answered = await turn;
    const gone = await failure(agent.request(to.session.prompt, { sessionId, prompt: text("say hi") }));
    const loggedOut = await agent.request(to.logout, {});
    const refused = await failure(agent.request(to.session.new, { cwd, mcpServers: [] }));
    return { closed, answer: answered, gone, loggedOut, refused };
  },
};

const child = spawn(command, args, { stdio: ["pipe", "pipe", "pipe"] });
let stderr = "";
child.stderr.on("data", (data) => (stderr += data));
const ended = once(child, "exit");
const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
const connection = app.connect(stream);
try {
  const found = await scenarios[scenario](connection.agent);
  child.stdin.end();
  const [status] = await ended;
  process.stdout.write(JSON.stringify({ ...found, updates, permissions, status, stderr }));
} finally {
  child.kill("SIGKILL");
}
