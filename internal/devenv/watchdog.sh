# Ends a server when the process that started it has gone.
#
# Standard input is a pipe whose other end only that process holds. Each line on it is the id of the process that runs now,
# 0 for none. The end of the input means that the starter stopped the server or died, by SIGKILL or otherwise.
#
# usage: sh watchdog.sh SIGNAL FOLDER
signal=$1
folder=$2
pid=0
while read -r line; do
	pid=$line
done
if [ "$pid" -gt 0 ]; then
	kill -s "$signal" "$pid"
	tries=0
	while kill -0 "$pid" && [ "$tries" -lt 100 ]; do
		sleep 0.1
		tries=$((tries + 1))
	done
	kill -s KILL "$pid"
fi
rm -rf "$folder"
