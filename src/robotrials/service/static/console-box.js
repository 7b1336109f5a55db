// What the browser keeps: the episode under way, what is still to be sent, and what the server said last.
// Everything is written at once; each thing to be sent has a key of its own, so that two windows cannot overwrite it.
const memory = new Map();
export let keeps = true;
let prefix = '';
let count = 0;

export function openBox(space) {
  prefix = `trialist-console:${space}:`;
  try {
    localStorage.setItem(`${prefix}probe`, '1');
    localStorage.removeItem(`${prefix}probe`);
  } catch (error) {
    keeps = false;
  }
}

export function get(name) {
  const text = keeps ? localStorage.getItem(prefix + name) : memory.get(name);
  try {
    return text ? JSON.parse(text) : null;
  } catch (error) {
    return null;
  }
}

export function put(name, value) {
  const text = JSON.stringify(value);
  if (keeps) localStorage.setItem(prefix + name, text);
  else memory.set(name, text);
}

export function remove(name) {
  if (keeps) localStorage.removeItem(prefix + name);
  else memory.delete(name);
}

function names(start) {
  const all = keeps ? Object.keys(localStorage).filter((key) => key.startsWith(prefix)).map((key) => key.slice(prefix.length)) : [...memory.keys()];
  return all.filter((name) => name.startsWith(start)).sort();
}

export function listed(start) {
  return names(start).map((name) => ({ name, value: get(name) })).filter((entry) => entry.value !== null);
}

export function queue(action) {
  count += 1;
  put(`out:${String(Date.now()).padStart(15, '0')}:${String(count).padStart(4, '0')}:${action.kind}:${action.id}`, action);
}

export function onOthers(call) {
  addEventListener('storage', (event) => { if (event.key === null || event.key.startsWith(prefix)) call(); });
}

export function freshId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
