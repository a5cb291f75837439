// Requests to this server, with the API key of this tab where there is one.

const KEY = "octavo-api-key";

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function apiKey() {
  return sessionStorage.getItem(KEY) ?? "";
}

export function setApiKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

// Like fetch, but throws an ApiError with the server's own words where the answer is not a good one.
export async function request(path, options = {}) {
  const headers = { ...options.headers };
  if (apiKey()) headers.Authorization = `Bearer ${apiKey()}`;
  const response = await fetch(path, { ...options, headers, cache: "no-store" });
  if (!response.ok) throw new ApiError(response.status, await errorText(response));
  return response;
}

async function errorText(response) {
  const text = await response.text().catch(() => "");
  try {
    const body = JSON.parse(text);
    const detail = body.error?.message ?? body.detail;
    if (typeof detail === "string") return detail;
  } catch {
    // Not JSON: the status will have to do.
  }
  if (response.status === 401) return "This server needs an API key.";
  return `The server answered ${response.status} ${response.statusText}.`;
}

// Yields {event, data} of a response of server-sent events; data is text.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = "message";
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
        else if (line.startsWith("event:")) event = line.slice(6).trim();
        else if (line === "") {
          if (data.length) yield { event, data: data.join("\n") };
          event = "message";
          data = [];
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
