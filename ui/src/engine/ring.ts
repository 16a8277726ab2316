/** The last values of a stream, so that a page that stays open for days holds as much as one of minutes. */
export class Ring<Value> {
  private values: Value[] = [];

  constructor(readonly capacity: number) {}

  push(value: Value): void {
    this.values.push(value);
    // cut in blocks: moving the whole array for each value would cost more than the value
    if (this.values.length >= this.capacity * 2) this.values = this.values.slice(-this.capacity);
  }

  clear(): void {
    this.values = [];
  }

  /** Oldest first, at most `capacity`. */
  toArray(): Value[] {
    return this.values.slice(-this.capacity);
  }

  get last(): Value | undefined {
    return this.values[this.values.length - 1];
  }
}
