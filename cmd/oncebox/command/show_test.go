package command

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/dead"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/events"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/stuck"
	"github.com/oncebox/oncebox/ops"
)

// An operator follows an event from its commit to the consumer that gave it up, and on after the replay.
func TestShowFollowsAnEvent(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.killed()
	id := document[[]dead.Letter](t, s.oncebox("dead", "list", "--inbox", "--json"))[0].ID
	whats := func() (list []string) {
		life := document[[]events.LifeItem](t, s.oncebox("show", id, "--json"))
		require.Len(t, life, 1)
		require.Equal(t, []string{id, "order.placed", "order", "default|poison message"}, []string{life[0].ID, life[0].Type, life[0].Topic, life[0].Key})
		for _, m := range life[0].History {
			list = append(list, cli.Join(string(m.What), m.Consumer, string(m.Action), m.Actor))
		}
		return list
	}
	require.ElementsMatch(t, []string{"recorded", "published", "dead billing"}, whats())
	text := s.oncebox("show", id)
	require.Zero(t, text.code, text.errs)
	for _, part := range []string{id, "order.placed", "consumer billing", "tries 1", "unknown currency \uFFFD[31mXYZ"} {
		require.Contains(t, text.out, part)
	}
	require.NotContains(t, text.out, "\x1b")
	require.NotContains(t, text.out, "poison message\"", "no payload")

	require.Zero(t, s.oncebox("dead", "replay", id, "--by", "ann", "--why", "mended", "--yes").code)
	s.Drain()
	require.ElementsMatch(t, []string{"recorded", "received billing", "published", "handled billing", "dead billing", "decided billing replay ann"}, whats())
	require.Contains(t, s.oncebox("show", id).out, "replay by ann because mended")
}

// An event is found by a part of what an operator knows of it.
func TestFindPrintsWhatItFinds(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.killed()
	id := document[[]dead.Letter](t, s.oncebox("dead", "list", "--inbox", "--json"))[0].ID
	found := document[[]events.FoundItem](t, s.oncebox("find", "poison message", "--json"))
	require.NotEmpty(t, found)
	require.Equal(t, []string{id, "ordering key", "order"}, []string{found[0].ID, found[0].By, found[0].Topic})
	text := s.oncebox("find", id[:18])
	require.Zero(t, text.code, text.errs)
	require.Contains(t, text.out, id)
	require.Contains(t, text.out, "FOUND BY")
	require.Contains(t, s.oncebox("find", "nothing of the kind").errs, "Nothing was found.")
	require.Contains(t, s.oncebox("find", "default", "--limit", "1").errs, "There may be more")
	for _, wrong := range [][]string{{"find"}, {"find", "x"}, {"find", "default", "--before", "yesterday"}} {
		require.Equal(t, cli.ExitUsage, s.oncebox(wrong...).code, wrong)
	}
}

func TestShowSaysThatNothingIsKnown(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	a := s.oncebox("show", "0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e")
	require.Equal(t, cli.ExitNothing, a.code)
	require.Contains(t, a.errs, ops.ErrUnknown.Error())
	require.Contains(t, a.errs, "published events are kept for")
	require.Equal(t, cli.ExitNothing, s.oncebox("show", "order-7").code)
	require.Equal(t, cli.ExitNothing, s.oncebox("show", "order-7", "--source", "partner").code)
	require.Equal(t, cli.ExitUsage, s.oncebox("show").code)
}

// Stuck things can be listed by tenant, topic and consumer.
func TestStuckIsFiltered(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.killed()
	for flag, kinds := range map[string][]ops.Kind{
		"--consumer=billing": {ops.MessageDead}, "--consumer=shipping": nil, "--tenant=default": {ops.EventDead, ops.MessageDead}, "--topic=invoice": nil,
	} {
		var got []ops.Kind
		a := s.oncebox("stuck", "--json", flag)
		for _, i := range list[stuck.Item](t, a) {
			got = append(got, i.Kind)
			require.Equal(t, i.Kind.Actions(), i.Actions)
		}
		require.ElementsMatch(t, kinds, got, flag)
	}
}

func TestShowSaysWhatWasRecordedElsewhere(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const id = "01a217bb-14b2-7c25-a634-cd7951718e92"
	s.exec("INSERT INTO inbox_consumer (consumer, source) VALUES ('billing', 'shop') ON CONFLICT (consumer) DO UPDATE SET source = 'shop'")
	s.exec("INSERT INTO inbox (message_key, consumer, tenant_id, source) VALUES (?, 'billing', 'default', 'tickets')", id)
	a := s.oncebox("show", id)
	require.Zero(t, a.code, a.errs)
	require.Contains(t, a.out, "recorded elsewhere (source tickets)")
	require.NotContains(t, a.out, "gone")
}
