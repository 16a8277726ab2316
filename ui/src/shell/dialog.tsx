import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";

interface Props {
  title: string;
  /** Escape, or a press beside it. Left out: it cannot be closed so. */
  onClose?: () => void;
  children: ComponentChildren;
}

/** A modal dialog, open for as long as it is there. */
export function Dialog({ title, onClose, children }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = element.current!;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return (
    <dialog
      ref={element}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose?.();
      }}
      onClick={(event) => event.target === element.current && onClose?.()}
    >
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}
