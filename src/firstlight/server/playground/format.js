// Numbers for people.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Three significant digits at least, thousands apart. */
export function number(value) {
  const digits = Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

/** A duration given in milliseconds. */
export function duration(ms) {
  return ms < 1000 ? `${number(ms)} ms` : `${number(ms / 1000)} s`;
}

/** A size given in bytes. */
export function size(bytes) {
  let unit = 0;
  while (bytes >= 1024 && unit < UNITS.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${number(bytes)} ${UNITS[unit]}`;
}

/** A share of 1. */
export function percent(share) {
  return `${(share * 100).toLocaleString("en", { maximumFractionDigits: 1 })} %`;
}

/** A number with its noun. */
export function count(n, one, many = `${one}s`) {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

/** A name of the API as words: `too_many_requests` is "too many requests". */
export function words(name) {
  return name.replaceAll("_", " ");
}
