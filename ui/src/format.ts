/** Numbers and texts as people read them. */

/** 950, 1,234, 12.3k, 4.56M. */
export function count(value: number): string {
  if (value < 10_000) return Math.round(value).toLocaleString("en-US");
  if (value < 1_000_000) return `${trim(value / 1_000)}k`;
  return `${trim(value / 1_000_000)}M`;
}

/** One digit after the point, none if there is no need. */
function trim(value: number): string {
  return value >= 100 ? value.toFixed(0) : value.toFixed(1).replace(/\.0$/, "");
}

/** "1 token", "36 tokens". */
export function tokens(value: number): string {
  return plural(value, "token");
}

export function plural(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** 0 s, 3.2 ms, 450 ms, 1.24 s, 3 min 20 s, 2 h 5 min. */
export function duration(seconds: number): string {
  if (seconds === 0) return "0 s";
  if (seconds < 0.01) return `${(seconds * 1000).toFixed(1)} ms`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(2)} s`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** 0 %, < 0.1 %, 0.4 %, 62 %, 99.7 %. */
export function percent(share: number): string {
  const value = share * 100;
  if (value > 0 && value < 0.05) return "< 0.1 %";
  if (value >= 99.95 && value < 100) return "> 99.9 %";
  const nearAnEnd = (value > 0 && value < 1) || (value > 99 && value < 100);
  return `${nearAnEnd ? value.toFixed(1) : value.toFixed(0)} %`;
}

/** White space as what can be seen in one line. */
export function visible(text: string): string {
  return text.replace(/\r?\n/g, "⏎").replace(/\t/g, "⇥");
}

/** A name and what is said under it, as tooltips show them. */
export type Fact = [name: string, value: string];
