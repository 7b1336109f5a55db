// Whether an operator's account can be so: the rules of service/console/account.py, for a page that has no server now.
const SLACK_S = 0.5;
const NAMES = ['placed', 'source', 'lost'];
const MARKED = [['placement', 'placed', 'placements'], ['drop_outside', 'lost', 'losses']];

function countTrouble(account, items) {
  if (account.label === 'fault') return null; // an episode that is run again has nothing to count
  const known = NAMES.filter((name) => account.counts[name] !== null);
  for (const name of known) {
    if (!Number.isInteger(account.counts[name])) return { field: name, why: `${account.counts[name]} is not a whole number` };
    if (account.counts[name] < 0) return { field: name, why: `${account.counts[name]} is less than none` };
  }
  if (items !== null) {
    const total = known.reduce((sum, name) => sum + account.counts[name], 0);
    const absent = NAMES.filter((name) => !known.includes(name));
    if (total > items || (total < items && !absent.length)) {
      return { field: known.includes('source') ? 'source' : known[known.length - 1], why: `${known.join(' + ')} = ${total}, and there were ${items} items` };
    }
    if (absent.length) return { field: absent[0], why: 'count these too', missing: true };
  }
  for (const [kind, name, word] of MARKED) {
    const marked = account.marks.filter((mark) => mark.kind === kind).length;
    if (known.includes(name) && marked > account.counts[name]) {
      return { field: name, why: `${marked} ${word} were marked and ${account.counts[name]} counted: undo a mark, or count again` };
    }
  }
  return null;
}

function labelTrouble(account, items, cap) {
  const { label, counts } = account;
  if (label === 'success' && items !== null && counts.placed !== items) return { field: 'placed', why: `a success places all ${items} items, and ${counts.placed} are counted` };
  if (label === 'timeout' && items !== null && counts.placed === items) return { field: 'label', why: `all ${items} items are placed: that is a success` };
  if (account.stop !== null && (label === 'success' || label === 'timeout')) return { field: 'label', why: 'you stopped the arm: that is Safety, or a system fault' };
  const left = cap - account.duration_s;
  if (label === 'timeout' && left > SLACK_S && counts.source !== 0) return { field: 'label', why: `${left.toFixed(1)} s were left, and there was something left to do: it did not run out of time` };
  return null;
}

export function findTrouble(account, { items, time_cap_s: cap }) {
  if (account.duration_s === null) return { field: 'clock', why: 'the clock still runs: stop it first' };
  if (account.duration_s > cap + SLACK_S) return { field: 'clock', why: `${account.duration_s.toFixed(1)} s is more than the time cap of ${cap} s` };
  // What is counted is checked before it is said how it ended, so that an impossible count is seen at once.
  const counted = countTrouble(account, items);
  if (counted && !counted.missing) return counted;
  if (account.label === null) return { field: 'label', why: 'say how it ended', missing: true };
  return counted || labelTrouble(account, items, cap);
}
