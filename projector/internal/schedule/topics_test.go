package schedule

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
)

// atMost is a policy whose pauses the tests need not know exactly: they are scattered, and this is the longest one.
const atMost = 4 * time.Second

func someTopics() *Topics {
	return &Topics{Pause: retry.Policy{Delay: time.Second, MaxDelay: atMost}}
}

// A topic in trouble is left alone until a single row of it is sent, and only one worker sends that row.
func TestATopicIsProbedByOneWorkerAfterItsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics := someTopics()
		pause, news := topics.begin("a")
		require.True(t, news)
		require.LessOrEqual(t, pause, atMost)
		_, news = topics.begin("a")
		require.False(t, news, "several messages of one batch are one failure")
		require.Equal(t, []string{"a"}, topics.List())
		require.Empty(t, topics.Ripe())
		require.False(t, topics.Probe("a"))

		time.Sleep(pause + time.Millisecond)
		require.Equal(t, []string{"a"}, topics.Ripe())
		require.True(t, topics.Probe("a"))
		require.False(t, topics.Probe("a"), "another worker does")
		require.Empty(t, topics.Ripe())
		require.Equal(t, []string{"a"}, topics.List())
		topics.heal("a")
		require.Equal(t, []string{"a"}, topics.List(), "an earlier call may have begun before the probe")

		require.Positive(t, topics.Probed("a", TopicInTrouble))
		require.Equal(t, []string{"a"}, topics.List())
		time.Sleep(atMost + time.Millisecond)
		require.True(t, topics.Probe("a"))
		require.Zero(t, topics.Probed("a", RowRefused))
		require.True(t, topics.Probe("a"), "another row may be sent at once")
		require.Zero(t, topics.Probed("a", TopicSound))
		require.Empty(t, topics.List())
	})
}

// A topic without rows is not left alone for ever.
func TestATopicIsForgottenIfNobodyProbesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics := someTopics()
		pause, _ := topics.begin("a")
		time.Sleep(pause + forgotten)
		require.Equal(t, []string{"a"}, topics.List())
		time.Sleep(time.Millisecond)
		require.Empty(t, topics.List())
	})
}

func rowsOf(topics ...string) (rows []*outboxdb.Row) {
	for _, topic := range topics {
		r := &outboxdb.Row{}
		r.Topic = topic
		rows = append(rows, r)
	}
	return rows
}

// No answer at all may mean that the broker is away, or that the topics of this call hang. A receipt for another topic decides.
func TestTopicsWithoutAnswerAreInTroubleOnceOthersAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics, pause := someTopics(), retry.Policy{Delay: time.Second, MaxDelay: atMost}
		var s Silence
		report := func(errs map[int]error, of ...string) []Trouble {
			began := time.Now()
			time.Sleep(time.Millisecond) // the call
			return s.Report(topics, rowsOf(of...), errs, began, pause)
		}
		hangs := errors.Join(messaging.ErrUnknown, errors.New("no answer"))

		require.Empty(t, report(map[int]error{0: hangs, 1: hangs}, "a", "b"))
		require.Empty(t, topics.List(), "nothing is known about them")
		require.Equal(t, 3, s.Batch(1000, 3), "a row per lane, since each try may store it once more")
		s.Turn()
		require.ElementsMatch(t, []string{"a", "b"}, s.LeftOut())
		require.False(t, s.IsQuiet(), "other topics have one try at once")

		found := report(nil, "c")
		require.Len(t, found, 2)
		for _, f := range found {
			require.ErrorIs(t, f.Reason, errSilent)
		}
		require.ElementsMatch(t, []string{"a", "b"}, topics.List())
		require.Empty(t, s.LeftOut())
		require.Equal(t, 1000, s.Batch(1000, 3))
	})
}

// If nothing answers, the pauses grow and no row is sent meanwhile.
func TestAWorkerIsQuietWhileNothingAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics, pause := someTopics(), retry.Policy{Delay: time.Second, MaxDelay: atMost}
		var s Silence
		hangs := errors.Join(messaging.ErrUnknown, errors.New("no answer"))
		s.Report(topics, rowsOf("a"), map[int]error{0: hangs}, time.Now(), pause)
		s.Turn()
		s.Report(topics, rowsOf("b"), map[int]error{0: hangs}, time.Now(), pause) // the try of other topics
		require.True(t, s.IsQuiet())
		require.Empty(t, topics.List())
		time.Sleep(atMost)
		require.False(t, s.IsQuiet())
		require.Empty(t, s.LeftOut(), "they are tried again")
	})
}

// A row that the broker has taken frees its topic, and an error of a topic pauses it, in the order of the rows.
func TestTheLastRowOfATopicDecides(t *testing.T) {
	inTrouble := &messaging.TopicError{Topic: "a", Err: errors.New("no")}
	for name, c := range map[string]struct {
		errs map[int]error
		left []string
	}{
		"taken, then refused": {map[int]error{1: inTrouble}, []string{"a"}},
		"refused, then taken": {map[int]error{0: inTrouble}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			topics := someTopics()
			var s Silence
			require.Len(t, s.Report(topics, rowsOf("a", "a"), c.errs, time.Now(), retry.Policy{Delay: time.Second}), 1)
			require.Equal(t, c.left, topics.List())
		})
	}
}
