package projector

import (
	"slices"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// heldSkip is the progress of a search through the held rows of a lane, in the order in which they became due: all
// rows up to its position stay. It is true as long as no topic or tenant comes back, as with skip, and no operator
// acts. Rows that the worker itself holds meanwhile become due later than all rows that it has looked at.
type heldSkip struct {
	to    lanedb.DueInfo
	first map[string]outboxdb.RowID // paused topics, and the first due row of each
}

// dueSeen says how much of the due rows a look has seen.
type dueSeen int

const (
	seenAll  dueSeen = iota // all of them, and all were returned
	seenMost                // the other rows stay, or are more than one look returns
	seenPart                // there may be rows to send behind the rows that stay
)

// chooseDue takes the due rows that may be tried, at most so many. The others belong to a paused topic or tenant. of
// returns the search of a lane, which records them. infos has up to a window of rows for each lane, in the order in
// which they became due; more lanes may have rows behind it.
func chooseDue(infos []lanedb.DueInfo, stay lanedb.Filter, most int, of func(lane int16) *heldSkip) (ids []outboxdb.RowID, looked map[int16]int) {
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
		if _, known := held.first[g.Topic]; !known && !tenant {
			if held.first == nil {
				held.first = map[string]outboxdb.RowID{}
			}
			held.first[g.Topic] = g.RowID
		}
		if !open[g.Lane] {
			held.to = g
		}
	}
	return ids, looked
}
