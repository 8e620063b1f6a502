// Drives the product with OpenAI's client for Node; says in one JSON object what came.
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 }); // address and key from the environment
const model = process.env.MODEL;
const messages = JSON.parse(process.env.MESSAGES);
const tools = JSON.parse(process.env.TOOLS);

const whole = await client.chat.completions.create({ model, messages });

let streamed = "";
let usage = null;
const stream = await client.chat.completions.create({
  model, messages, stream: true, stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}

const runner = client.chat.completions.runTools({
  model,
  messages: JSON.parse(process.env.CALLING),
  tools: tools.map((tool) => ({
    ...tool, function: { ...tool.function, parse: JSON.parse, function: ({ town }) => `rain in ${town}` },
  })),
});
const afterTools = await runner.finalContent();

let refused = null;
try {
  await client.chat.completions.create({ model: "gpt-0", messages });
} catch (error) {
  refused = [error.constructor.name, error.status, error.code, Boolean(error.requestID)];
}

const models = [];
for await (const each of client.models.list()) models.push(each.id);
const embedded = await client.embeddings.create({ model: "bundled", input: ["a", "b"] });

console.log(JSON.stringify({
  whole: whole.choices[0].message.content, streamed, usage, afterTools, refused, models,
  dimensions: embedded.data.map((each) => each.embedding.length),
}));
