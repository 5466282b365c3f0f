package schedule

import (
	"slices"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// HeldSearch is the progress of a search through the held rows of a lane, in the order in which they became due: all
// rows up to its position stay. It is true as long as no topic or tenant comes back, as with [Search], and no operator
// acts. Rows that the worker itself holds meanwhile become due later than all rows that it has looked at.
type HeldSearch struct {
	To    lanedb.DueInfo
	First map[string]outboxdb.RowID // paused topics, and the first due row of each
}

// DueSeen is the part of the due rows that a search has read.
type DueSeen int

const (
	SeenAll  DueSeen = iota // all of them, and all were returned
	SeenMost                // the other rows stay, or are more than one look returns
	SeenPart                // there may be rows to send behind the rows that stay
)

// ChooseDue takes the due rows that may be tried, at most so many. The others belong to a paused topic or tenant. of
// returns the search of a lane, which records them. infos has up to a window of rows for each lane, in the order in
// which they became due; more lanes may have rows behind it.
func ChooseDue(infos []lanedb.DueInfo, stay lanedb.Filter, most int, of func(lane int16) *HeldSearch) (ids []outboxdb.RowID, looked map[int16]int) {
	open := map[int16]bool{} // a row before this one may be tried
	looked = map[int16]int{}
	for _, g := range infos {
		held := of(g.Lane)
		looked[g.Lane]++
		tenant := slices.Contains(stay.Tenants, g.Tenant)
		if !tenant && !slices.Contains(stay.Topics, g.Topic) {
			open[g.Lane] = true
			if len(ids) < most {
				ids = append(ids, g.RowID)
			}
			continue
		}
		if _, known := held.First[g.Topic]; !known && !tenant {
			if held.First == nil {
				held.First = map[string]outboxdb.RowID{}
			}
			held.First[g.Topic] = g.RowID
		}
		if !open[g.Lane] {
			held.To = g
		}
	}
	return ids, looked
}
