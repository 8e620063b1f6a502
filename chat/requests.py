"""The planned prompt as the provider is sent it."""

from chat.context.report import Prompt
from chat.context.types import PromptMessage
from chat.prompts import FIRST_STEP, Setting, Step
from files.models import File
from files.services import open_blob
from llm.messages import Image, Message, ModelRequest


def model_request(setting: Setting, prompt: Prompt, step: Step = FIRST_STEP) -> ModelRequest:
    """In the last step the definitions are sent all the same: providers want them beside earlier calls."""
    model, options = setting.model, setting.options
    left = setting.room.window - prompt.report.used
    limits = [limit for limit in (model.max_output, options.max_output) if limit]
    # A call that is demanded is demanded once: after it the model chooses again.
    demanded = step.first and not step.last and options.tool_choice == "required"
    return ModelRequest(
        model=model.name,
        messages=tuple(_wire(message) for message in prompt.messages),
        max_output=min(*limits, left) if limits else None,
        tools=setting.toolbox.definitions,
        tool_choice="none" if step.last else "required" if demanded else "auto",
        required_tool=options.required_tool if demanded else None,
        several_system_messages=model.several_system_messages,
        temperature=options.temperature,
        stop=options.stop,
        sampling=options.sampling,
        response_format=options.response_format,
        parallel_tool_calls=options.parallel_tool_calls,
    )


def _wire(message: PromptMessage) -> Message:
    images = tuple(_image(image.id) for image in message.images)
    return Message(message.role, message.text or "", images, message.tool_calls, message.tool_call_id)


def _image(file_id: str) -> Image:
    file = File.objects.get(pk=file_id)
    with open_blob(file=file) as blob:
        return Image(file.media_type, blob.read())
