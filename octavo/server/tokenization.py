"""POST /tokenize and /detokenize"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from octavo.prompts import text_size
from octavo.server.context import ServerContext
from octavo.server.errors import bad_request
from octavo.server.fields import CHAT_UNSUPPORTED, DetokenizeFields, TokenizeFields, parse_fields
from octavo.server.generation import ignored_header
from octavo.server.messages import read_messages
from octavo.server.tool_fields import read_functions

_UNSUPPORTED = {name: CHAT_UNSUPPORTED[name] for name in ("chat_template", "chat_template_kwargs")}


async def tokenize(request: Request, context: ServerContext) -> Response:
    """The token ids that a prompt or a conversation becomes: what the engine would really see."""
    body = await context.read_body(request)
    fields, ignored = parse_fields(TokenizeFields, body, _UNSUPPORTED)
    context.check_model(fields.model)
    text, messages = fields.prompt, fields.messages
    if (text is None) == (messages is None):
        raise bad_request("prompt: one of prompt and messages must be given", "prompt")
    if fields.tools and messages is None:
        raise bad_request("tools: go with messages, not with prompt")
    try:
        if text is not None:
            checked = text
            context.reader.check_size(len(text), "prompt")
            ids = await context.tokenize(
                request, lambda: context.tokenizer.encode(checked, fields.add_special_tokens), len(text)
            )
        else:
            chat = read_messages(messages, ignored)
            tools = [function.for_template() for function in read_functions(fields.tools, ignored)]
            generation = fields.add_generation_prompt
            ids = await context.tokenize(
                request, lambda: context.reader.chat_ids(chat, tools, generation), text_size([chat, tools])
            )
    except ValueError as error:
        raise bad_request(str(error)) from None
    answer = {"count": len(ids), "max_model_len": context.llm.loaded.max_model_len, "tokens": ids}
    if fields.return_token_strs:
        answer["token_strs"] = [context.tokenizer.decode([token_id], False) for token_id in ids]
    return JSONResponse(answer, headers=ignored_header(ignored))


async def detokenize(request: Request, context: ServerContext) -> Response:
    """The text of token ids, control tokens spelled out."""
    body = await context.read_body(request)
    fields, ignored = parse_fields(DetokenizeFields, body, {})
    context.check_model(fields.model)
    limit = context.llm.loaded.vocab_size
    for place, token_id in enumerate(fields.tokens):
        if not 0 <= token_id < limit:
            raise bad_request(f"tokens[{place}]: is {token_id}, must be from 0 to {limit - 1}")
    text = await context.tokenize(request, lambda: context.tokenizer.decode(fields.tokens, False), len(fields.tokens))
    return JSONResponse({"prompt": text}, headers=ignored_header(ignored))
