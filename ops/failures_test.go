package ops_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
	"github.com/oncebox/oncebox/ops"
)

var ann = operator.By{Actor: "ann", Reason: "known"}

// Things with one cause are one line, with their true number, whatever the filter. Archived ones are left out of all lists.
func TestCausesOfBothBoxes(t *testing.T) {
	s := newService(t)
	const many = 30
	for n := range many {
		s.fails = fmt.Errorf("smtp 10.0.0.%d away", n)
		s.place(fmt.Sprint("m", n))
		s.DrainFailing()
	}
	for n := range 2 {
		s.FailNextPublish(messaging.Permanent(fmt.Errorf("no schema %d", n)))
		s.place(fmt.Sprint("e", n))
		s.DrainFailing()
	}
	s.FailNextPublish(errors.New("refused"))
	s.place("r")
	s.DrainFailing()
	kinds := func(f ops.Filter) map[ops.Kind]int {
		t.Helper()
		list, _, err := s.Causes(t.Context(), f)
		require.NoError(t, err)
		counts := map[ops.Kind]int{}
		for n := range list {
			require.NotContains(t, counts, list[n].Kind)
			require.NotNil(t, list[n].Failures)
			require.Equal(t, list[n].Fingerprint, list[n].Failures.Fingerprint)
			counts[list[n].Kind] = list[n].Count
		}
		return counts
	}
	all := map[ops.Kind]int{ops.MessageFailing: many, ops.EventDead: 2, ops.EventFailing: 1}
	require.Equal(t, all, kinds(ops.Filter{}))
	require.Equal(t, all, kinds(ops.Filter{Tenant: "default", Topic: "order"}))
	require.Equal(t, map[ops.Kind]int{ops.MessageFailing: many}, kinds(ops.Filter{Consumer: "billing"}))
	require.Empty(t, kinds(ops.Filter{Tenant: "acme"}))

	groups, err := s.Failures().List(t.Context())
	require.NoError(t, err)
	require.Len(t, groups, 3)
	byKind := map[string]*failures.Group{}
	for n := range groups {
		byKind[groups[n].Cause] = &groups[n]
	}
	outage, dead, refused := byKind["smtp … away"], byKind["no schema …"], byKind["refused"]
	require.Equal(t, []string{"", "order"}, []string{dead.Consumer, dead.Topic})
	dry := &operator.Bulk{DryRun: true}
	for _, test := range []struct {
		action operator.Action
		of     *failures.Group
		want   int64
	}{
		{operator.Retry, outage, many}, {operator.Replay, outage, 0}, {operator.Discard, dead, 2}, {operator.Retry, dead, 0}, {operator.Retry, refused, 0},
	} {
		n, err := s.Failures().Act(t.Context(), test.action, test.of, ann, dry)
		require.NoError(t, err)
		require.Equal(t, test.want, n, "%s %s", test.action, test.of.Cause)
	}
	n, err := s.Failures().Act(t.Context(), operator.Discard, dead, ann, nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, n)

	require.NoError(t, s.Failures().Note(t.Context(), outage.Fingerprint, "restarts at night", ann))
	require.NoError(t, s.Failures().Archive(t.Context(), outage.Fingerprint, ann))
	for _, f := range []ops.Filter{{}, {Tenant: "default"}} {
		require.Equal(t, map[ops.Kind]int{ops.EventFailing: 1}, kinds(f))
		_, archived, err := s.Causes(t.Context(), f)
		require.NoError(t, err)
		require.Len(t, archived, 1)
		require.Equal(t, "restarts at night", archived[0].Note)
		each, err := s.Stuck(t.Context(), f, 0)
		require.NoError(t, err)
		require.Len(t, each, 1)
	}
	require.NoError(t, s.Failures().Unarchive(t.Context(), outage.Fingerprint, ann))
	require.Equal(t, many, kinds(ops.Filter{})[ops.MessageFailing])
	for _, err := range []error{
		s.Failures().Note(t.Context(), "0", "x", ann), s.Failures().Archive(t.Context(), "0", ann), s.Failures().Unarchive(t.Context(), "0", ann),
	} {
		require.ErrorIs(t, err, failures.ErrUnknown)
	}
}

// An event that is refused again for the same cause fails since the first refusal. With another cause the time begins anew.
func TestRefusedEventFailsSinceItsCauseBegan(t *testing.T) {
	s := newService(t)
	refuse := func(why string) failures.Group {
		t.Helper()
		s.FailNextPublish(errors.New(why))
		s.DrainFailing()
		groups, err := s.Failures().List(t.Context())
		require.NoError(t, err)
		require.Len(t, groups, 1)
		return groups[0]
	}
	s.place("r")
	first := refuse("quota 1 exceeded")
	s.Advance(24 * time.Hour)
	second := refuse("quota 2 exceeded")
	require.Equal(t, first.Fingerprint, second.Fingerprint)
	require.Equal(t, first.First().Add(-24*time.Hour), second.First(), "Advance has set it back")
	require.Equal(t, "quota 2 exceeded", second.Example().Error)
	s.Advance(24 * time.Hour)
	third := refuse("no such topic")
	require.NotEqual(t, first.Fingerprint, third.Fingerprint)
	require.True(t, third.First().After(first.First()))
}
