# A shell program: saves with mv, resumes, and on SIGTERM saves and exits.
state="$WINDFALL_CHECKPOINT_DIR/step"
step=0
[ -f "$state" ] && step=$(cat "$state")
save() { echo "$step" > "$state.tmp" && mv "$state.tmp" "$state"; }
trap 'save; exit 0' TERM
while [ "$step" -lt 25 ]; do
  sleep 0.2
  step=$((step + 1))
  echo "at $step of 25"
  [ $((step % 5)) -eq 0 ] && save
done
save
