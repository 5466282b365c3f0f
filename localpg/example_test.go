package localpg_test

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/localpg"
)

func ExampleStart() {
	ctx := context.Background()
	db, err := localpg.Start(ctx, localpg.Output(io.Discard))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	conn, err := pgx.Connect(ctx, db.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close(ctx)
	var tables int
	err = conn.QueryRow(ctx, "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'").Scan(&tables)
	fmt.Println(tables, err)
	// Output: 0 <nil>
}
