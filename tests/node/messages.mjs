// Drives the product's Messages with Anthropic's client for Node; says in one JSON object what came.
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ maxRetries: 0 }); // address and key from the environment
const model = process.env.MODEL;
const tools = JSON.parse(process.env.TOOLS);
const messages = [{ role: "user", content: process.env.QUESTION }];

const whole = await client.messages.create({ model, max_tokens: 500, messages });

let streamed = "";
const stream = client.messages.stream({
  model, max_tokens: 5000, messages, thinking: { type: "enabled", budget_tokens: 2000 },
});
stream.on("text", (text) => { streamed += text; });
const final = await stream.finalMessage();

const turns = [{ role: "user", content: process.env.CALLING }];
const first = await client.messages.create({ model, max_tokens: 500, messages: turns, tools });
turns.push({ role: "assistant", content: first.content }, {
  role: "user",
  content: first.content.filter((block) => block.type === "tool_use").map((block) => (
    { type: "tool_result", tool_use_id: block.id, content: `rain in ${block.input.town}` }
  )),
});
const second = await client.messages.create({ model, max_tokens: 500, messages: turns, tools });

const counted = await client.messages.countTokens({ model, messages });

let refused = null;
try {
  await client.messages.create({ model: "claude-0", max_tokens: 5, messages });
} catch (error) {
  refused = [error.constructor.name, error.status, error.type, Boolean(error.requestID)];
}

console.log(JSON.stringify({
  whole: whole.content[0].text, streamed, blocks: final.content.map((block) => block.type), usage: final.usage,
  stopped: first.stop_reason, afterTools: second.content[0].text, counted: counted.input_tokens, refused,
}));
