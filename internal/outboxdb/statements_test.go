package outboxdb_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/outboxtest"
)

func TestStatementsOfRows(t *testing.T) {
	statements := map[string]string{"list failing events": outboxdb.FailingRows}
	one := event.Envelope{AggregateType: "order", AggregateID: "1"}
	for name, evs := range map[string][]event.Envelope{"one": {one}, "two of one aggregate": {one, one}, "two": {one, {}}, "many": make([]event.Envelope, 17)} {
		for _, known := range []bool{true, false} {
			text, _, err := outboxdb.Insertion(&outboxdb.Layout{Lanes: 64}, evs, known)
			require.NoError(t, err)
			statements[fmt.Sprintf("insert %s, tenants known %t", name, known)] = text
		}
	}
	outboxtest.Statements(t, statements)
}
