package inbox

import "time"

// AnswersWithin gives each statement of the inbox another time than store.AnswerTimeout.
func (i *Inbox) AnswersWithin(d time.Duration) { i.store.AnswerWithin(d) }
