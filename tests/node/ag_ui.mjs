// Drives the product with AG-UI's client for Node, which verifies the order of events; says in one JSON object what came.
import { HttpAgent } from "@ag-ui/client";

const { URL: url, TOKEN: token, FORWARDED: forwarded, ASKED: asked, GUARDED: guarded } = process.env;
const tools = JSON.parse(process.env.TOOLS);
const forwardedProps = JSON.parse(forwarded);
const newAgent = () => new HttpAgent({ url, headers: { Authorization: `Bearer ${token}` } });
const user = (content) => ({ id: crypto.randomUUID(), role: "user", content });
const shape = (message) => [message.role, message.content ?? "", (message.toolCalls ?? []).map((call) => call.function)];

// A tool of the program's own: the run ends with its call, and the next goes on with the result.
const agent = newAgent();
const names = [];
agent.subscribe({ onEvent: ({ event }) => { names.push(event.type); } });
agent.addMessage(user(asked));
await agent.runAgent({ tools, forwardedProps });
const [call] = agent.messages.at(-1).toolCalls;
agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: call.id, content: "rain" });
await agent.runAgent({ tools, forwardedProps });

// A tool that a person has to allow: the run ends with an interrupt, and the next answers it.
const careful = newAgent();
careful.addMessage(user(guarded));
await careful.runAgent({ forwardedProps });
const [interrupt] = careful.pendingInterrupts;
const resume = [{ interruptId: interrupt.id, status: "resolved", payload: { allow: true } }];
await careful.runAgent({ resume });

const refused = await newAgent().runAgent().catch((error) => error.message);

console.log(JSON.stringify({
  thread: agent.threadId, names, messages: agent.messages.map(shape), interrupt,
  guarded: careful.messages.map(shape), refused,
}));
