// Short notes about what an action led to. Read out politely, gone after a while.

export type Toast = { id: number; text: string; bad: boolean; link?: string };

class Toasts {
  list = $state.raw<Toast[]>([]);
  #next = 1;

  say(text: string, options: { bad?: boolean; link?: string } = {}) {
    const toast = { id: this.#next++, text, bad: options.bad ?? false, link: options.link };
    this.list = [...this.list.slice(-3), toast];
    setTimeout(() => (this.list = this.list.filter((one) => one.id !== toast.id)), options.bad ? 12_000 : 6_000);
  }
}

export const toasts = new Toasts();
