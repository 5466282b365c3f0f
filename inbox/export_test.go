package inbox

import "time"

// AnswersWithin gives each statement of the inbox another time than answerTimeout.
func (i *Inbox) AnswersWithin(d time.Duration) {
	i.answer = d
	i.sql = i.patient.Within(i.patience())
}
