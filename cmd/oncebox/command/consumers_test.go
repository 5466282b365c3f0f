package command

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/consumers"
	"github.com/oncebox/oncebox/messaging/count"
	"github.com/oncebox/oncebox/operator"
)

// consumersOfEachState are consumers as their processes and the broker have written them down.
const consumersOfEachState = `
INSERT INTO inbox_consumer (consumer, beat_at, stopped_at) VALUES
	('mailer', now(), NULL), ('printer', now(), NULL), ('paused', now(), NULL), ('unknown', now(), NULL), ('stored', now(), NULL),
	('ended', now() - interval '1 day', now() - interval '1 day'), ('killed', now() - interval '1 day', NULL);
INSERT INTO inbox_topic (topic, consumer, subscribed, backlog, settled, connections, unattended, asked_at, error, failed_at) VALUES
	('order', 'mailer', true, 7, 0, 1, 0, now(), '', NULL), ('parcel', 'mailer', true, 1000, 0, 1, 0, now(), '', NULL),
	('order', 'printer', true, 8, 0, 0, 0, now(), '', NULL), ('order', 'paused', true, 0, 0, 1, 0, now(), '', NULL),
	('order', 'unknown', true, NULL, NULL, NULL, NULL, NULL, 'admin: no route to host', now()),
	('order', 'stored', true, NULL, NULL, NULL, NULL, NULL, '', NULL),
	('order', 'ended', true, 9, 0, 0, 0, now(), '', NULL), ('order', 'killed', true, 10, 0, 0, 0, now(), '', NULL);
INSERT INTO inbox_process (consumer, topic, process, name, state, since, unsettled, error, failed_at, seen_until) VALUES
	('mailer', 'order', gen_random_uuid(), 'host:1', 'CONNECTED', now(), 2, '', NULL, now() + interval '1 hour'),
	('mailer', 'parcel', gen_random_uuid(), 'host:1', 'CONNECTED', now(), 3, '', NULL, now() + interval '1 hour'),
	('printer', 'order', gen_random_uuid(), 'host:1', 'AWAY', now() - interval '1 hour', 0, 'connection refused', now(), now() + interval '1 hour'),
	('printer', 'order', gen_random_uuid(), 'host:2', 'CONNECTED', now(), 0, '', NULL, now() + interval '1 hour'),
	('paused', 'order', gen_random_uuid(), 'host:1', 'PAUSED', now(), 0, '', NULL, now() + interval '1 hour'),
	('unknown', 'order', gen_random_uuid(), 'host:1', 'CONNECTED', now(), 0, '', NULL, now() + interval '1 hour'),
	('stored', 'order', gen_random_uuid(), 'host:1', 'STORED', now(), 0, '', NULL, now() + interval '1 hour')`

// squeezed are the lines of an answer without the room between columns, and with TIME for times.
func squeezed(text string) (lines []string) {
	for line := range strings.Lines(masked(text)) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

// Each consumer is listed with how it is connected and what waits at the broker, and status sums that up.
func TestConsumersAreListed(t *testing.T) {
	t.Setenv("ONCEBOX_PULSAR_URL", "") // a broker would be asked instead
	t.Setenv("PULSAR_URL", "")
	s := newShop(t)
	s.exec("DELETE FROM inbox_process")
	s.exec("DELETE FROM inbox_topic")
	s.exec("DELETE FROM inbox_consumer")
	require.Equal(t, "No consumer has run on this database.\n", s.oncebox("consumers", "list").out)
	s.exec(consumersOfEachState)
	s.exec("UPDATE inbox_topic SET backlog_precision = 'ESTIMATED', oldest_at = asked_at - interval '130 seconds' WHERE topic = 'parcel'")
	a := s.oncebox("consumers", "list")
	require.Zero(t, a.code, a.errs)
	require.ElementsMatch(t, []string{
		"CONSUMER TOPIC PROCESS STATE SINCE IN HAND AT BROKER LAST ERROR OF THE CONNECTION",
		"ended order none stopped TIME 9",
		"killed order none not seen since TIME 10",
		"mailer order host:1 connected TIME 2 7",
		"mailer parcel host:1 connected TIME 3 about 1000, late by 2m10s",
		"paused order host:1 paused TIME 0 0",
		"printer order host:1 away TIME 0 8 TIME connection refused",
		"printer order host:2 connected TIME 0 8",
		"stored order host:1 stored TIME 0 -",
		"unknown order host:1 connected TIME 0 ?",
	}, squeezed(a.out))
	status := squeezed(s.oncebox("status").out)
	for _, row := range []string{
		"CONSUMER RUNS PARKED OLDEST FAILING KEYS KEYS BEHIND DEAD DEAD AT BROKER",
		"ended stopped TIME 0 - 0 0 0 9",
		"killed not seen since TIME 0 - 0 0 0 10",
		"mailer yes 0 - 0 0 0 about 1007, late by 2m10s",
		"paused paused since TIME 0 - 0 0 0 0",
		"printer yes, but 1 of 2: no connection since TIME 0 - 0 0 0 8",
		"stored yes 0 - 0 0 0 -",
		"unknown yes 0 - 0 0 0 ?",
	} {
		require.Contains(t, status, row)
	}
	for _, c := range document[[]consumers.Item](t, s.oncebox("consumers", "list", "--json")) {
		if c.Consumer == "mailer" {
			require.Equal(t, []count.Precision{count.Exact, count.Estimated}, []count.Precision{c.Topics[0].BacklogPrecision, c.Topics[1].BacklogPrecision})
			require.InDelta(t, 130, c.Topics[1].BacklogAgeSeconds, 0.001)
		}
		if c.Consumer == "unknown" {
			require.Nil(t, c.Topics[0].Backlog)
			require.Equal(t, "admin: no route to host", c.Topics[0].BacklogError)
		}
	}
}

// A consumer that is gone for good is forgotten after an operator has confirmed it, and only if no process runs it.
func TestConsumerIsForgotten(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.exec(consumersOfEachState)
	s.exec("UPDATE inbox_consumer SET source = 'another' WHERE consumer = 'ended'")
	for want, args := range map[string][]string{
		"give the name of one consumer":                                                                  {},
		"no consumer nobody has run on this database":                                                    {"nobody", "--yes"},
		"a process runs the consumer mailer: stop it first":                                              {"mailer", "--yes"},
		"the command asks before it acts, but the standard input is not a terminal: give --yes; nothing": {"ended"},
	} {
		a := s.oncebox(append([]string{"consumers", "forget", "--by", "ann"}, args...)...)
		require.NotZero(t, a.code)
		require.Contains(t, a.errs, want)
	}
	require.Contains(t, s.asked("n\n", "consumers", "forget", "ended", "--by", "ann").errs, "nothing was done")
	require.Contains(t, s.oncebox("consumers", "list").out, "ended")
	require.Contains(t, s.asked("y\n", "consumers", "forget", "ended", "--by", "ann").out, "The consumer ended is forgotten.\n")
	require.Equal(t, consumers.ActionResult{Action: operator.Forget, Consumer: "killed"},
		document[consumers.ActionResult](t, s.oncebox("consumers", "forget", "killed", "--yes", "--json", "--by", "ann")))
	left := s.oncebox("consumers", "list").out
	require.NotContains(t, left, "ended")
	require.NotContains(t, left, "killed")
	require.Contains(t, left, "mailer")
	require.Contains(t, s.oncebox("consumers", "forget", "ended", "--yes", "--by", "ann").errs, "no consumer ended has run")
	var owners int
	require.NoError(t, s.DB.NewRaw("SELECT count(*) FROM inbox_consumer WHERE consumer = 'ended'").Scan(t.Context(), &owners))
	require.Zero(t, owners, "another service may use the name")
}

func TestConsumersArePausedAndResumed(t *testing.T) {
	s := newShop(t)
	s.exec(consumersOfEachState)
	require.Contains(t, s.oncebox("consumers", "pause", "mailer", "--by", "ann", "--yes").errs, "--why is missing")
	require.Contains(t, s.oncebox("consumers", "pause", "nobody", "--by", "ann", "--why", "x", "--yes").errs, "no consumer nobody has run")
	done := s.oncebox("consumers", "pause", "mailer", "--by", "ann", "--why", "smtp is down", "--for", "2h", "--yes")
	require.Zero(t, done.code, done.errs)
	require.Contains(t, done.out, "The consumer mailer is paused.\n")
	require.NotZero(t, s.oncebox("consumers", "pause", "mailer", "--by", "ann", "--why", "again", "--yes").code)
	for _, command := range [][]string{{"consumers", "list"}, {"status"}, {"stuck"}} {
		out := s.oncebox(command...).out
		require.Contains(t, out, "paused by ann since", command)
		require.Contains(t, out, "smtp is down", command)
	}
	resumed := s.oncebox("consumers", "resume", "mailer", "--by", "ann", "--yes", "--json")
	require.Equal(t, consumers.ActionResult{Action: operator.Resume, Consumer: "mailer"}, document[consumers.ActionResult](t, resumed))
	require.NotContains(t, s.oncebox("consumers", "list").out, "smtp is down")
}
