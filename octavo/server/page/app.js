// The page: the chat, the memory, the API key and the colour scheme.

import { apiKey, request, setApiKey } from "./api.js";
import { Chat } from "./chat.js";
import { Memory } from "./memory.js";

const SCHEME = "octavo-scheme";
const SCHEMES = { auto: "◐", light: "○", dark: "●" };

const element = (id) => document.getElementById(id);

function showState(state, text) {
  element("connection").dataset.state = state === "refused" ? "lost" : state;
  element("connection").textContent = text;
  if (state === "refused") element("key").focus();
}

const chat = new Chat((message) => showState("refused", message));
const memory = new Memory(showState);

async function connect() {
  try {
    const { data } = await (await request("/v1/models")).json();
    chat.model = data[0].id;
    element("model").textContent = chat.model;
  } catch (error) {
    // The memory may be there without the API; a refusal it meets too, and says so.
    element("model").textContent = "";
  }
  await memory.watch();
}

function setScheme(name) {
  const scheme = name in SCHEMES ? name : "auto";
  document.documentElement.dataset.theme = scheme;
  element("theme").textContent = SCHEMES[scheme];
  element("theme").setAttribute("aria-label", `Colour scheme: ${scheme === "auto" ? "as the system" : scheme}`);
  localStorage.setItem(SCHEME, scheme);
  memory.redraw();
}

element("key").value = apiKey();
element("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setApiKey(element("key").value.trim());
  showState("waiting", "connecting");
  connect();
});
element("theme").addEventListener("click", () => {
  const names = Object.keys(SCHEMES);
  setScheme(names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length]);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => memory.redraw());
setScheme(localStorage.getItem(SCHEME) ?? "auto");
connect();
