"""The chat of Chainlit's guide. `chainlit run` runs it in an environment of its own."""

import os

import chainlit
from openai import AsyncOpenAI

client = AsyncOpenAI(base_url=os.environ["MODEL_URL"], api_key="a key")


async def answer(message: chainlit.Message) -> None:
    reply = chainlit.Message(content="")
    stream = await client.chat.completions.create(
        model="scripted", messages=[{"role": "user", "content": message.content}], stream=True
    )
    async for part in stream:
        if part.choices and (token := part.choices[0].delta.content):
            await reply.stream_token(token)
    await reply.update()


chainlit.on_message(answer)
