package stuck

import (
	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/ops"
)

// next returns what an operator can do about one stuck thing. If it is a command, the command comes last and can be copied as it is.
func next(p cli.Program, f *ops.Stuck) string {
	switch f.Kind {
	case ops.RelayMissing:
		return ifItLives(f) + "start a process of the service that runs its relay, or: " + p.Typed("relay")
	case ops.RelayLate:
		return "the log of the relay says what fails; to check the broker, run with the variables of the service: " + p.Typed("doctor")
	case ops.ConsumerMissing:
		if f.Topic != "" {
			return ifItLives(f) + "start a process of the service that runs the consumer " + f.Consumer + " on the topic " + f.Topic
		}
		return ifItLives(f) + "start a process of the service that runs the consumer " + f.Consumer
	case ops.ConsumerAway:
		return "mend the broker or the connection to it; the consumer reconnects by itself; to check the broker, run with the variables of the service: " +
			p.Typed("doctor")
	case ops.ConsumerLate:
		return "read the log of its processes; if a handler hangs, restart them; to see its state: " + p.Typed("consumers", "list")
	case ops.ConsumerBehind:
		return "start more processes, up to the number of partitions; to stop what a tenant sends from now on, though not its messages that are at the " +
			"broker already: " + p.Decided("tenants", "pause", "TENANT") + "; to see whether it gets less: " + p.Typed("status", "--watch")
	case ops.ConsumerPaused:
		return "to handle its messages again: " + p.Decided("consumers", "resume", f.Consumer)
	case ops.EventDead:
		return p.Typed("dead", "show", f.ID, "--outbox")
	case ops.MessageDead:
		return p.Typed("dead", "show", f.MessageKey, "--consumer", f.Consumer)
	case ops.EventFailing:
		return "mend the cause; it is tried again by itself"
	case ops.MessageFailing:
		return "mend the cause; it is tried again by itself, or at once with: " + p.Decided("parked", "retry", f.MessageKey, "--consumer", f.Consumer)
	case ops.StepUnknown:
		return "find out whether the step was done. If it was not: " +
			p.Decided("keys", "resolve", f.ID, f.Step, "--not-done", "--why", "the other side has no such call")
	case ops.TenantPaused:
		return "to publish its events again: " + p.Decided("tenants", "resume", f.Tenant)
	default:
		return ""
	}
}

// ifItLives returns the text that comes before the advice about missing processes. They may still be alive without
// access to the database, and a second process would not mend that.
func ifItLives(f *ops.Stuck) string {
	if !f.Vanished {
		return ""
	}
	return "check whether its process still runs; if it does, mend its connection to the database (its log says what fails); if not, "
}

// other returns another command that the operator can choose instead.
func other(p cli.Program, f *ops.Stuck) string {
	switch f.Kind {
	case ops.StepUnknown:
		return "if it was done, give its result as JSON: " +
			p.Decided("keys", "resolve", f.ID, f.Step, "--done", "null", "--why", "the other side has it")
	case ops.ConsumerMissing:
		return "if the consumer no longer exists: " + p.Typed("consumers", "forget", f.Consumer)
	default:
		return ""
	}
}

// nextOfMany returns what an operator can do about all things with one cause.
func nextOfMany(p cli.Program, c *ops.Cause) string {
	switch c.Kind {
	case ops.EventDead, ops.MessageDead:
		return "mend the cause, then: " + p.Decided("failures", "replay", c.Fingerprint)
	case ops.EventFailing:
		return "mend the cause; they are tried again by themselves"
	case ops.MessageFailing:
		return "mend the cause; they are tried again by themselves, or at once with: " + p.Decided("failures", "retry", c.Fingerprint)
	default:
		// Kinds without a filter of their own: the operator decides about each.
		return "each of them needs its own command; to list them: " + p.Typed("stuck", "--each")
	}
}
