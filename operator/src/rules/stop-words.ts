/**
 * Messages that say nothing but "stop": recognised without a model, so that a stop works when no model does, and at
 * once. Only a whole message counts. Inside a sentence the same word may mean anything ("don't stop", "stop the
 * container"), and that is a question for a model. The list is closed: what is not in it is asked about.
 */

/** Bare, as `isStopWord` compares them: lower case, no punctuation, single spaces, no apostrophes. */
const STOPS: ReadonlySet<string> = new Set([
  // English
  ..."stop|stop it|stop that|stop now|stop please|please stop|stop stop|cancel|cancel it|cancel that|cancel this".split(
    "|",
  ),
  ..."please cancel|abort|abort it|halt|never mind|nevermind|nvm|forget it|stop working|stop everything".split("|"),
  // German
  ..."stopp|halt stopp|abbrechen|abbruch|bitte abbrechen|bitte stoppen|stoppen|anhalten|hör auf|aufhören|vergiss es|lass es".split(
    "|",
  ),
  // French
  ..."arrête|arrete|arrêtez|arretez|annule|annulez|annuler|laisse tomber|stoppe|stoppez".split("|"),
  // Spanish
  ..."para|parar|detente|detener|cancela|cancelar|alto|olvídalo|olvidalo|déjalo|dejalo".split("|"),
  // Portuguese
  ..."pare|parem|cancele|cancelem|esquece|esqueça|esqueca".split("|"),
  // Italian
  ..."ferma|fermati|fermo|annulla|lascia perdere|basta".split("|"),
  // Dutch
  ..."hou op|annuleer|annuleren|laat maar|stoppen maar".split("|"),
  // Swedish, Danish, Norwegian
  ..."stoppa|sluta|avbryt|glöm det|annuller|afbryd|glem det|avbryte".split("|"),
  // Polish, Czech
  ..."przestań|przestan|zatrzymaj|zatrzymaj się|anuluj|nieważne|přestaň|zastav|zruš to|zrušit".split("|"),
  // Turkish
  ..."dur|durdur|iptal|iptal et|vazgeç|boşver".split("|"),
  // Russian, Ukrainian
  ..."стоп|остановись|остановить|хватит|отмена|отмени|забудь|зупинись|скасувати|досить".split("|"),
  // Chinese, Japanese, Korean
  ..."停|停止|停下|取消|算了|止めて|やめて|中止|キャンセル|ストップ|멈춰|중지|취소|그만".split("|"),
  // Arabic, Hindi
  ..."توقف|قف|إلغاء|الغاء|रुको|बंद करो|रद्द करो".split("|"),
]);

/** Longer than every word of the list with its signs around it: what is longer is not looked at. */
const MAX_LENGTH = 64;

/** Does this message say nothing but that the work under way shall stop? */
export function isStopWord(text: string): boolean {
  if (text.length > MAX_LENGTH) return false;
  const bare = text
    .normalize("NFC")
    .toLowerCase()
    .replaceAll("\u0307", "") // what lower case leaves of a Turkish capital I
    .replaceAll(/['’]/g, "")
    .replaceAll(/[^\p{L}\p{M}\p{N}]+/gu, " ")
    .trim();
  return STOPS.has(bare);
}
