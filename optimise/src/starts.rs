//! What is going to be started, said before it is: each program by its whole command once, and then by its number.

/// The programs that were named so far.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    commands: Vec<String>,
}

impl Starts {
    /// Lines that name what is started next: one for each command that was not named before, and one of what it is for and how
    /// often it is started, or for how long.
    pub(crate) fn lines(&mut self, what: &str, commands: &[String], how_often: &str) -> Vec<String> {
        let (mut lines, mut numbers) = (Vec::new(), Vec::new());
        for command in commands {
            let known = self.commands.iter().position(|known| known == command);
            let at = known.unwrap_or_else(|| {
                self.commands.push(command.clone());
                lines.push(format!("program {}: {command}", self.commands.len()));
                self.commands.len() - 1
            });
            numbers.push((at + 1).to_string());
        }
        numbers.dedup();
        let plural = if numbers.len() == 1 { "" } else { "s" };
        lines.push(format!("starts program{plural} {} for {what}: {how_often}", numbers.join(" and ")));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_written_out_once_and_then_has_a_number() {
        let mut starts = Starts::default();
        let (before, after) = ("A=1 x profile --threads=1".to_string(), "A=1 x profile --threads=2".to_string());
        assert_eq!(
            starts.lines("first-start", std::slice::from_ref(&before), "once"),
            ["program 1: A=1 x profile --threads=1", "starts program 1 for first-start: once"]
        );
        assert_eq!(
            starts.lines("1-threads", &[before.clone(), after.clone()], "in turns"),
            ["program 2: A=1 x profile --threads=2", "starts programs 1 and 2 for 1-threads: in turns"]
        );
        assert_eq!(
            starts.lines("whole", &[before, after], "in turns"),
            ["starts programs 1 and 2 for whole: in turns"]
        );
    }
}
