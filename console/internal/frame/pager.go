package frame

import (
	"net/url"
	"strconv"

	"github.com/oncebox/oncebox/console/internal/words"
)

// fieldRow is the number of rows before a page. It is only shown: the page begins after the last row of the page before, whose place is in the address.
const fieldRow = "row"

// Pager leads through the pages of a list.
type Pager struct {
	// From and To are the numbers of the first and the last row of the page.
	From, To string
	// Of is the number of all rows, "" if it is unknown.
	Of string
	// First and Next are the addresses of other pages. "": this is the first, or the last.
	First, Next string
}

// NewPager returns the pager of a page with so many rows. asked is the query of the page, and fields that of the list. next is the place of the last row,
// nil on the last page. Of is known on the last page only.
func NewPager(page string, asked, fields url.Values, rows int, next url.Values) (p Pager) {
	before, err := strconv.Atoi(asked.Get(fieldRow))
	if err != nil || before < 0 {
		before = 0
	}
	p.From, p.To = words.Group(int64(before+1)), words.Group(int64(before+rows))
	if before > 0 {
		p.First = Address(page, fields)
	}
	if next == nil {
		p.Of = p.To
		return p
	}
	p.Next = Address(page, With(fields, With(next, url.Values{fieldRow: {strconv.Itoa(before + rows)}})))
	return p
}
