/** What pages have beside the browser's own: htmx, idiomorph, Mermaid, the events of htmx, and the events of our scripts. */

interface HtmxRequest {
  elt: Element;
  target: Element;
  xhr: XMLHttpRequest;
  requestConfig: { elt: Element; target: Element; unfilteredFormData: FormData };
  shouldSwap: boolean;
  serverResponse: string;
  successful: boolean;
}

interface HtmxExtension {
  isInlineSwap(style: string): boolean;
  handleSwap(
    style: string,
    target: Element,
    fragment: DocumentFragment,
    settleInfo: { tasks: (() => void)[] },
  ): Node[] | false;
}

declare const htmx: {
  logger: (element: Element, event: string, detail: { error?: string }) => void;
  ajax(method: string, url: string, context: object): Promise<void>;
  defineExtension(name: string, extension: HtmxExtension): void;
  process(element: Element): void;
  trigger(element: Element | string, event: string): void;
};

interface IdiomorphCallbacks {
  beforeNodeMorphed(here: Node, node: Node): boolean;
  afterNodeMorphed(here: Node, node: Node): void;
  afterNodeAdded(node: Node): void;
  beforeNodeRemoved(node: Node): boolean;
  beforeAttributeUpdated(name: string, here: Element, kind: "update" | "remove"): boolean;
}

declare const Idiomorph: {
  morph(
    target: Element,
    content: Element | DocumentFragment,
    options: { morphStyle: "innerHTML" | "outerHTML"; restoreFocus: boolean; callbacks: IdiomorphCallbacks },
  ): Node[];
};

interface SpeechRecognition extends EventTarget {
  lang: string;
  continuous: boolean;
  interimResults: boolean;
  start(): void;
  stop(): void;
  abort(): void;
  addEventListener(
    type: "result",
    take: (event: { resultIndex: number; results: Iterable<SpeechRecognitionResult> }) => void,
  ): void;
  addEventListener(type: "error", take: (event: { error: string }) => void): void;
  addEventListener(type: "end", take: () => void): void;
}

interface Window {
  SpeechRecognition?: new () => SpeechRecognition;
  webkitSpeechRecognition?: new () => SpeechRecognition;
}

declare const mermaid: {
  initialize(config: object): void;
  render(id: string, source: string): Promise<{ svg: string }>;
};

interface HTMLElementEventMap {
  "htmx:sendError": CustomEvent<HtmxRequest>;
  "htmx:confirm": CustomEvent<HtmxRequest>;
  "htmx:beforeRequest": CustomEvent<HtmxRequest>;
  "htmx:beforeSend": CustomEvent<HtmxRequest>;
  "htmx:beforeOnLoad": CustomEvent<HtmxRequest>;
  "htmx:beforeSwap": CustomEvent<HtmxRequest>;
  "htmx:afterSwap": CustomEvent<HtmxRequest>;
  "htmx:afterRequest": CustomEvent<HtmxRequest>;
  "htmx:afterSettle": CustomEvent<HtmxRequest>;
  attachfile: CustomEvent<{ id: string }>;
  attachconversation: CustomEvent<{ url: string; name: string }>;
  command: CustomEvent<{ does: string }>;
  sidechange: CustomEvent<{ conversation: string; title: string } | null>;
  markchange: CustomEvent<{ message: string }>;
  titlechange: CustomEvent<{ title: string }>;
}
