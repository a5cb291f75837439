// A chat over /v1/chat/completions, streamed.

import { events, request } from "./api.js";

const element = (id) => document.getElementById(id);

export class Chat {
  constructor(onRefused) {
    this.onRefused = onRefused; // told when a key is missing or wrong
    this.model = null;
    this.conversation = [];
    this.controller = null;
    element("chat-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    element("prompt").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.send();
      }
    });
    element("stop").addEventListener("click", () => this.controller?.abort());
    element("clear").addEventListener("click", () => this.clear());
  }

  clear() {
    this.controller?.abort();
    this.conversation = [];
    element("messages").replaceChildren(element("welcome") ?? "");
    element("chat-status").textContent = "";
    element("prompt").focus();
  }

  // What the parameters say, under the API's names. Null after showing what is wrong with them.
  parameters() {
    const fields = {};
    for (const [id, name] of [
      ["temperature", "temperature"], ["top-p", "top_p"], ["max-tokens", "max_tokens"], ["n", "n"], ["seed", "seed"],
      ["repetition-penalty", "repetition_penalty"],
    ]) {
      const input = element(id);
      if (!input.checkValidity()) {
        element("parameters").open = true;
        input.reportValidity();
        return null;
      }
      if (input.value !== "") fields[name] = Number(input.value);
    }
    return fields;
  }

  async send() {
    const prompt = element("prompt").value.trim();
    const fields = this.parameters();
    if (!prompt || !fields || this.controller) return;
    const system = element("system").value.trim();
    this.conversation.push({ role: "user", content: prompt });
    const messages = [...(system ? [{ role: "system", content: system }] : []), ...this.conversation];
    const answer = this.show(prompt, fields.n ?? 1);
    element("prompt").value = "";
    const controller = (this.controller = new AbortController());
    this.setBusy(true);
    try {
      await this.stream({ model: this.model, messages, ...fields }, answer, controller.signal);
    } catch (error) {
      if (controller.signal.aborted) answer.stopped = true;
      else this.showError(answer, error);
    }
    answer.finish();
    const text = answer.texts[0];
    if (controller === this.controller) {
      // A failed question is taken back, so that the next one does not follow it unanswered.
      if (text) this.conversation.push({ role: "assistant", content: text });
      else this.conversation.pop();
      this.controller = null;
      this.setBusy(false);
    }
  }

  async stream(body, answer, signal) {
    const response = await request("/v1/chat/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
      signal,
    });
    for await (const { data } of events(response)) {
      if (data === "[DONE]") break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      for (const choice of chunk.choices) answer.append(choice.index, choice.delta?.content, choice.finish_reason);
      if (chunk.usage) answer.usage = chunk.usage;
    }
  }

  show(prompt, n) {
    const box = element("messages");
    element("welcome")?.remove();
    const question = document.createElement("div");
    question.className = "message user text";
    question.textContent = prompt;
    const answer = new Answer(n, box);
    box.append(question, answer.element);
    box.scrollTop = box.scrollHeight;
    return answer;
  }

  showError(answer, error) {
    answer.fail(error.message);
    if (error.status === 401 || error.status === 403) this.onRefused(error.message);
  }

  setBusy(busy) {
    element("send").disabled = busy;
    element("stop").hidden = !busy;
    element("messages").setAttribute("aria-busy", String(busy));
    element("chat-status").textContent = busy ? "Answering" : "";
  }
}

// One answer on the screen, of one or several choices; text is put there once a frame.
class Answer {
  constructor(n, box) {
    this.box = box;
    this.started = performance.now();
    this.first = null;
    this.texts = Array(n).fill("");
    this.reasons = Array(n).fill(null);
    this.usage = null;
    this.stopped = false;
    this.frame = 0;
    this.element = document.createElement("div");
    this.element.className = "message assistant answering";
    const who = document.createElement("div");
    who.className = "who";
    who.textContent = n > 1 ? `${n} answers; the conversation goes on with the first` : "Answer";
    const choices = document.createElement("div");
    choices.className = n > 1 ? "choices several" : "choices";
    this.places = this.texts.map(() => {
      const place = document.createElement("div");
      place.className = "choice text";
      choices.append(place);
      return place;
    });
    this.facts = document.createElement("div");
    this.facts.className = "facts";
    this.element.append(who, choices, this.facts);
  }

  append(index, text, reason) {
    if (text) {
      this.first ??= performance.now();
      this.texts[index] += text;
      if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
    }
    if (reason) this.reasons[index] = reason;
  }

  draw() {
    this.frame = 0;
    const follows = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < 60;
    this.places.forEach((place, index) => {
      if (place.textContent.length !== this.texts[index].length) place.textContent = this.texts[index];
    });
    if (follows) this.box.scrollTop = this.box.scrollHeight;
  }

  fail(message) {
    const line = document.createElement("div");
    line.className = "error";
    line.setAttribute("role", "alert");
    line.textContent = message;
    this.element.append(line);
  }

  finish() {
    this.draw();
    this.element.classList.remove("answering");
    const now = performance.now();
    const facts = [];
    if (this.usage) {
      const { prompt_tokens: prompt, completion_tokens: output, prompt_tokens_details: details } = this.usage;
      facts.push(`${prompt} prompt tokens${details?.cached_tokens ? `, ${details.cached_tokens} cached` : ""}`);
      facts.push(`${output} tokens, ${((1000 * output) / (now - this.started)).toFixed(0)} a second`);
    }
    if (this.first) facts.push(`first text after ${(this.first - this.started).toFixed(0)} ms`);
    if (this.reasons.includes("length")) facts.push("cut at max tokens");
    if (this.stopped) facts.push("stopped");
    this.facts.textContent = facts.join(" · ");
    this.box.scrollTop = this.box.scrollHeight;
  }
}
