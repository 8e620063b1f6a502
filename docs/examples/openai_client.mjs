import OpenAI from "openai";

const client = new OpenAI({ baseURL: "http://127.0.0.1:8000/v1", apiKey: "gh_your-token" });

const models = await client.models.list();
const stream = await client.chat.completions.create({
  model: models.data[0].id,
  messages: [{ role: "user", content: "Say hello." }],
  stream: true,
});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
}
process.stdout.write("\n");
