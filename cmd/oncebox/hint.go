package main

import (
	"slices"
	"strings"

	"github.com/oncebox/oncebox/ops"
)

// typed is a command as an operator types it. Words that a shell would change are quoted.
func typed(words ...string) string { return line(words, "") }

// decided is a command that asks who decides: the shell knows.
func decided(words ...string) string { return line(words, ` --by "$USER"`) }

// line has an id that begins with a dash, as one in 64 of base64 does, and what follows it up to the next flag, at its end, where it is no flag.
func line(words []string, more string) string {
	begin := slices.IndexFunc(words, func(word string) bool { return strings.HasPrefix(word, "-") })
	if begin < 0 || isFlag(words[begin]) {
		return "oncebox " + joined(words) + more
	}
	end := begin + 1
	for end < len(words) && !isFlag(words[end]) {
		end++
	}
	return "oncebox " + joined(words[:begin], words[end:]) + more + " -- " + joined(words[begin:end])
}

// isFlag tells a flag of ours from an id.
func isFlag(word string) bool {
	name, is := strings.CutPrefix(word, "--")
	return is && name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz-") == ""
}

func joined(parts ...[]string) string {
	words := slices.Concat(parts...)
	for n, word := range words {
		words[n] = quoted(word)
	}
	return strings.Join(words, " ")
}

func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+,=", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// next is what an operator does about one thing that is stuck. The command is complete and comes last.
func next(f *ops.Stuck) string {
	switch f.Kind {
	case ops.RelayMissing:
		return ifItLives(f) + "start a process of the service that runs its relay, or: " + typed("relay")
	case ops.RelayLate:
		return "the log of the relay says what fails; the broker is asked, with the variables of the service, by: " + typed("doctor")
	case ops.ConsumerMissing:
		if f.Topic != "" {
			return ifItLives(f) + "start a process of the service that runs the consumer " + f.Consumer + " on the topic " + f.Topic
		}
		return ifItLives(f) + "start a process of the service that runs the consumer " + f.Consumer
	case ops.ConsumerAway:
		return "mend the broker, or the way to it; it connects again by itself; the broker is asked, with the variables of the service, by: " + typed("doctor")
	case ops.ConsumerLate:
		return "the log of its processes says more; if a handler hangs, start them anew; how it is: " + typed("consumers", "list")
	case ops.ConsumerPaused:
		return "have the program call App.Resume, or start it anew; how it is: " + typed("consumers", "list")
	case ops.EventDead:
		return typed("dead", "show", f.ID, "--outbox")
	case ops.MessageDead:
		return typed("dead", "show", f.MessageKey, "--consumer", f.Consumer)
	case ops.EventFailing:
		return "mend the cause; it is tried again by itself"
	case ops.MessageFailing:
		return "mend the cause; it is tried again by itself, or at once with: " + decided("parked", "retry", f.MessageKey, "--consumer", f.Consumer)
	case ops.StepUnknown:
		return "find out whether the step was done. If it was not: " +
			decided("keys", "resolve", f.ID, f.Step, "--not-done", "--why", "the other side has no such call")
	case ops.TenantPaused:
		return "when its events may leave: " + decided("tenants", "resume", f.Tenant)
	default:
		return ""
	}
}

// ifItLives comes before what an operator does about processes that are missing and may not be: a second one does not mend the first.
func ifItLives(f *ops.Stuck) string {
	if !f.Vanished {
		return ""
	}
	return "look whether its process lives; if it does, mend its way to the database, its log says what fails; if not, "
}

// other is what an operator does instead, where that is another command.
func other(f *ops.Stuck) string {
	switch f.Kind {
	case ops.StepUnknown:
		return "if it was, with what it returned as JSON: " +
			decided("keys", "resolve", f.ID, f.Step, "--done", "null", "--why", "the other side has it")
	case ops.ConsumerMissing:
		return "if the consumer is gone for good: " + typed("consumers", "forget", f.Consumer)
	default:
		return ""
	}
}

// nextOfMany is what an operator does about all that has one cause.
func nextOfMany(c *ops.Cause) string {
	var alike []string
	if part := ops.CommonPart(c.Error); part != "" {
		alike = []string{"--error", part}
	}
	switch c.Kind {
	case ops.EventDead:
		return "mend the cause, then: " + decided(append([]string{"dead", "replay", "--outbox", "--topic", c.Topic}, alike...)...)
	case ops.MessageDead:
		return "mend the cause, then: " + decided(append([]string{"dead", "replay", "--consumer", c.Consumer}, alike...)...)
	case ops.EventFailing:
		return "mend the cause; they are tried again by themselves"
	case ops.MessageFailing:
		return "mend the cause; they are tried again by themselves, or at once with: " +
			decided(append([]string{"parked", "retry", "--consumer", c.Consumer}, alike...)...)
	default:
		return "each has a command of its own: " + typed("stuck", "--each")
	}
}
