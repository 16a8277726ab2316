import type { ComponentChildren } from "preact";

function icon(children: ComponentChildren) {
  return () => (
    <svg viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      {children}
    </svg>
  );
}

export const SunIcon = icon(
  <>
    <circle cx="8" cy="8" r="2.8" />
    <path d="M8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9" />
  </>,
);
export const MoonIcon = icon(<path d="M13.2 9.6A5.6 5.6 0 0 1 6.4 2.8a5.6 5.6 0 1 0 6.8 6.8z" />);
export const SystemIcon = icon(
  <>
    <circle cx="8" cy="8" r="5.5" />
    <path d="M8 2.5v11A5.5 5.5 0 0 0 8 2.5z" fill="currentColor" />
  </>,
);
export const HelpIcon = icon(
  <>
    <circle cx="8" cy="8" r="6.2" />
    <path d="M6.2 6.2A1.8 1.8 0 1 1 8 8.3v.9M8 11.4v.1" />
  </>,
);
export const PlusIcon = icon(<path d="M8 3v10M3 8h10" />);
export const SendIcon = icon(<path d="M8 13V3.2M3.8 7.2 8 3l4.2 4.2" />);
export const StopIcon = icon(<rect x="4" y="4" width="8" height="8" rx="1" fill="currentColor" />);
export const EditIcon = icon(<path d="M10.8 2.8l2.4 2.4L5.6 12.8l-3 .6.6-3z" />);
export const AgainIcon = icon(<path d="M13 8a5 5 0 1 1-1.6-3.7M13 2.2v2.6h-2.6" />);
export const DeleteIcon = icon(<path d="M3 4.5h10M6.3 4.5V3h3.4v1.5M4.4 4.5l.6 8.5h6l.6-8.5" />);
export const CopyIcon = icon(
  <>
    <rect x="5.5" y="5.5" width="7.5" height="8" rx="1.2" />
    <path d="M3 10.5V3.7c0-.7.5-1.2 1.2-1.2h5.3" />
  </>,
);
export const SettingsIcon = icon(
  <>
    <path d="M2.5 4.5h6M12 4.5h1.5M2.5 11.5h1.5M7.5 11.5h6" />
    <circle cx="10.2" cy="4.5" r="1.7" />
    <circle cx="5.7" cy="11.5" r="1.7" />
  </>,
);
export const ListIcon = icon(<path d="M2.5 4h11M2.5 8h11M2.5 12h7" />);
export const CloseIcon = icon(<path d="M4 4l8 8M12 4l-8 8" />);
export const SharedIcon = icon(
  <>
    <path d="M2.5 8h4.5c2.5 0 2.5-4 5-4h1.5M7 8c2.5 0 2.5 4 5 4h1.5" />
    <circle cx="3" cy="8" r="1.3" fill="currentColor" />
  </>,
);
