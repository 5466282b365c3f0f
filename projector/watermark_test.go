package projector

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/outbox"
)

func TestMarkCounts(t *testing.T) {
	first := outbox.Mark{Seq: 100, XID: 7, Xmin: 7, Written: 5000, Flushed: 4000, Timeline: "00000001", Incarnation: "a"}
	for name, c := range map[string]struct {
		then   outbox.Mark
		valid  int64
		resets int
	}{
		"a transaction may still commit a lower number": {outbox.Mark{Seq: 120, XID: 9, Xmin: 7, Written: 6000, Flushed: 6000, Timeline: "00000001", Incarnation: "a"}, 0, 0},
		"a crash may still forget the number":           {outbox.Mark{Seq: 120, XID: 9, Xmin: 9, Written: 6000, Flushed: 4999, Timeline: "00000001", Incarnation: "a"}, 0, 0},
		"neither":                                       {outbox.Mark{Seq: 120, XID: 9, Xmin: 9, Written: 6000, Flushed: 5000, Timeline: "00000001", Incarnation: "a"}, 100, 0},
		"numbers were forgotten":                        {outbox.Mark{Seq: 99, XID: 9, Xmin: 9, Written: 6000, Flushed: 6000, Timeline: "00000001", Incarnation: "a"}, 0, 1},
		"a standby took over":                           {outbox.Mark{Seq: 120, XID: 9, Xmin: 9, Written: 6000, Flushed: 6000, Timeline: "00000002", Incarnation: "a"}, 0, 1},
		"the server crashed":                            {outbox.Mark{Seq: 120, XID: 9, Xmin: 9, Written: 6000, Flushed: 6000, Timeline: "00000001", Incarnation: "b"}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var m watermark
			m.take(first)
			require.Zero(t, m.current())
			m.take(c.then)
			require.Equal(t, c.valid, m.current())
			resets, _ := m.generation()
			require.Equal(t, c.resets, resets)
		})
	}
}

// Between a look and the next one that was answered, the server may have become another one.
func TestMarkBeforeALookThatFailedDoesNotCount(t *testing.T) {
	var m watermark
	look := func(seq, xid int64) {
		m.take(outbox.Mark{Seq: seq, XID: xid, Xmin: xid, Written: seq, Flushed: seq, Timeline: "00000001", Incarnation: "a"})
	}
	look(100, 7)
	m.doubt()
	look(120, 9)
	require.Zero(t, m.current())
	look(130, 11)
	require.EqualValues(t, 120, m.current())
	m.doubt()
	look(99, 13)
	resets, _ := m.generation()
	require.Equal(t, 1, resets, "what was seen before the failure is still compared")
}
