package schedule

import (
	"hash/maphash"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// A lane is whole up to the position of a search if all rows up to there may leave: the filter keeps none of them, and
// none is behind a key that waits.
func TestSearchTellsWhetherSomethingIsLeft(t *testing.T) {
	row := func(seq int64, key string, pass, kept bool) lanedb.RowInfo {
		return lanedb.RowInfo{RowID: outboxdb.RowID{Lane: 1, Seq: seq}, Key: key, Pass: pass, Kept: kept}
	}
	for name, c := range map[string]struct {
		infos []lanedb.RowInfo
		whole bool
	}{
		"all leave":            {[]lanedb.RowInfo{row(1, "a", true, false), row(2, "b", true, false)}, true},
		"the filter keeps one": {[]lanedb.RowInfo{row(1, "a", true, true), row(3, "b", true, true)}, false},
		"a key waits":          {[]lanedb.RowInfo{row(11, "waits", true, false), row(12, "b", true, false)}, false},
		"the last one waits":   {[]lanedb.RowInfo{row(11, "b", true, false), row(12, "waits", true, false)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			seed, s := maphash.MakeSeed(), &Search{}
			s.keys.pause(maphash.String(seed, "waits"), 10)
			_, seen := Choose(c.infos, 100, seed, func(int16) *Search { return s })
			require.Equal(t, c.whole, seen[1].Whole)
		})
	}
}
