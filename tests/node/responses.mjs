// Drives the product's Responses with OpenAI's client for Node; says in one JSON object what came.
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 }); // address and key from the environment
const model = process.env.MODEL;
const tools = JSON.parse(process.env.TOOLS);

const whole = await client.responses.create({ model, input: process.env.QUESTION });

const spoken = ({ output }) => output.flatMap((item) => item.content ?? []).map((part) => part.text).join("");

const events = [];
let streamed = "";
const stream = client.responses.stream({ model, input: process.env.QUESTION });
for await (const event of stream) {
  events.push(event.type);
  if (event.type === "response.output_text.delta") streamed += event.delta;
}
const final = await stream.finalResponse();

const input = [{ role: "user", content: process.env.CALLING }];
const first = await client.responses.create({ model, input, tools });
for (const item of first.output) {
  input.push(item);
  if (item.type === "function_call") {
    input.push({ type: "function_call_output", call_id: item.call_id, output: `rain in ${JSON.parse(item.arguments).town}` });
  }
}
const second = await client.responses.create({ model, input, tools });

let refused = null;
try {
  await client.responses.create({ model, input: "Hi", previous_response_id: first.id });
} catch (error) {
  refused = [error.constructor.name, error.status, error.code, error.param];
}

console.log(JSON.stringify({
  whole: whole.output_text, streamed, final: spoken(final), usage: final.usage, first: events[0], last: events.at(-1),
  afterTools: second.output_text, refused,
}));
