package outbox

// incarnation is an expression that says whether this is the database of before, with the past of before. What a process remembers of
// rows and numbers is void where it has another value. It has another one after each of these, whether they keep the rows of unlogged tables or not:
//
//   - a crash of the server, a standby that takes over, a backup that is recovered: the row is gone, see begin;
//   - a dump that is restored, into whichever database and schema: another transaction has written the row, with the id that it had;
//   - a copy of the database by CREATE DATABASE … TEMPLATE, which has the row as it was: its files have the number of another database;
//   - a server that is stopped and started again, on files that may have been put in their place meanwhile, and another server: it began
//     at another time.
//
// Each statement of a projector contains it, so it asks for nothing that is not in the server's memory: 3 µs, of which the id alone takes 2.
const incarnation = `coalesce((SELECT concat_ws('/', i.id, i.xmin, pg_relation_filepath(i.tableoid), date_part('epoch', pg_postmaster_start_time()))
	FROM {schema}.outbox_incarnation i), '')`

// begin enters the row after a crash. It waits for others that do, and does nothing if they have.
const begin = `INSERT INTO {schema}.outbox_incarnation DEFAULT VALUES ON CONFLICT DO NOTHING`

// sameServer, followed by the incarnation for which positions were read, is false on a server that may have forgotten some of what they
// rest on, or may have given numbers to other rows.
const sameServer = incarnation + ` = `
