package outlook

import (
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/ops"
)

// Why explains a stuck thing that has no error.
func Why(s *ops.Stuck) string {
	switch {
	case s.Kind == ops.RelayMissing && s.Relay != "":
		return "Events wait, and no relay publishes them. The relay that was responsible for them has vanished."
	case s.Kind == ops.RelayMissing:
		return "Events wait, and no relay publishes them."
	case s.Kind == ops.RelayLate:
		return "Events wait. A relay is responsible for them, but the broker has a problem or the relay is too slow."
	case s.Kind == ops.ConsumerMissing && s.Vanished:
		return "Messages wait, and the processes of their consumer have vanished."
	case s.Kind == ops.ConsumerMissing && s.Topic != "":
		return "Messages of the topic wait, and no process that runs their consumer handles it."
	case s.Kind == ops.ConsumerMissing:
		return "Messages wait, and no process runs their consumer."
	case s.Kind == ops.ConsumerPaused:
		return "An operator has paused it, and has not resumed it."
	case s.Kind == ops.StepUnknown:
		return "Its process ended in the middle of the step, or got no answer. Requests with the key are refused."
	default:
		return ""
	}
}

// ifItLives returns the text that comes before the advice about missing processes: they may still be alive.
func ifItLives(s *ops.Stuck) string {
	if s.Vanished {
		return "Check whether its process still runs. If it does, mend its connection to the database; its log says what fails. If not, "
	}
	return ""
}

// Advice returns what to do if no button can do it.
func Advice(s *ops.Stuck) string {
	switch s.Kind {
	case ops.RelayMissing:
		return words.Upper(ifItLives(s) + "start a process of the service that runs its relay, or run: oncebox relay")
	case ops.RelayLate:
		return "Read the log of the relay. The command oncebox doctor asks the broker."
	case ops.ConsumerMissing:
		where := ""
		if s.Topic != "" {
			where = " on the topic " + s.Topic
		}
		return words.Upper(ifItLives(s)+"start a process of the service that runs the consumer "+s.Consumer+where) +
			". If the consumer no longer exists: oncebox consumers forget " + s.Consumer
	case ops.ConsumerAway:
		return "Mend the broker, or the way to it; the consumer connects again by itself. The command oncebox doctor asks the broker."
	case ops.ConsumerLate:
		return "Read the log of its processes. If a handler hangs, start them anew."
	case ops.ConsumerBehind:
		return "Nothing is lost. Start more processes of the service, up to the number of the topic's partitions. " +
			"To pause a tenant stops its events from now on, and not its messages that are at the broker already."
	case ops.ConsumerPaused:
		return "Resume the consumer when its messages may be handled."
	case ops.EventFailing:
		return "Mend the cause. It is tried again by itself."
	case ops.EventDead, ops.MessageDead:
		return "Mend the cause, then replay it; or edit or discard it."
	case ops.MessageFailing:
		return "Mend the cause. It is tried again by itself, or at once."
	case ops.StepUnknown:
		return "Find out whether the step was done, and enter the outcome."
	case ops.TenantPaused:
		return "Resume the tenant when its events may be published."
	default:
		return ""
	}
}
