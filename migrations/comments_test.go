package migrations_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
)

// A reader who types \dt+ sees in one sentence what each table and view holds. Daily partitions go by the
// name of their table.
func TestEachTableHasASentence(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	var found []struct{ Name, Comment string }
	require.NoError(t, db.NewRaw(`
SELECT c.relname AS name, coalesce(obj_description(c.oid, 'pg_class'), '') AS comment
FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v') AND c.relname !~ '_[0-9]{8}$'
ORDER BY 1`).Scan(t.Context(), &found))
	require.NotEmpty(t, found)
	sentence := regexp.MustCompile(`^[A-Z][^.!?]{15,}\.$`)
	said := map[string]string{}
	for _, r := range found {
		require.Regexp(t, sentence, r.Comment, "COMMENT ON %s", r.Name)
		require.Empty(t, said[r.Comment], "%s holds something else", r.Name)
		said[r.Comment] = r.Name
	}
}
